from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.peer_store import EXPIRY_S, FILTERS_KEPT_FROM, FILTERS_KEPT_S, SAMPLES_MAX, PeerStore
from lycosa.dht.core.scrape_filter import ScrapeFilter

ONE, OTHER = b"1" * 20, b"2" * 20


def peer(number: int, port: int = 1000) -> bytes:
    return pack(f"20.0.{number // 256}.{number % 256}", port)


def filled(count: int, **options: float) -> PeerStore:
    store = PeerStore(**options)
    for number in range(count):
        store.announce(ONE, peer(number), float(number), seed=number % 2 == 0)
    return store


def test_an_announced_peer_is_returned_until_it_expires():
    store = filled(1)
    assert store.peers(ONE, 10, 0, EXPIRY_S - 1) == [peer(0)]
    assert store.peers(ONE, 10, 0, EXPIRY_S) == []
    assert (len(store), store.infohash_count()) == (0, 0)


def test_a_new_announce_renews_a_peer_and_replaces_its_port():
    store = filled(2)
    store.announce(ONE, peer(0, 2000), 1000.0, seed=False)
    assert set(store.peers(ONE, 10, 0, 1000.0)) == {peer(0, 2000), peer(1)}
    assert store.peers(ONE, 10, 0, 999.0 + EXPIRY_S) == [peer(0, 2000)]


def test_with_more_peers_than_wanted_they_are_returned_in_turn():
    store = filled(10)
    seen = {each for chance in range(0, 10, 3) for each in store.peers(ONE, 3, chance, 10.0)}
    assert seen == {peer(number) for number in range(10)}
    assert len(set(store.peers(ONE, 3, 8, 10.0))) == 3


def test_seeds_are_left_out_on_request_if_there_are_other_peers():
    store = filled(4)
    assert set(store.peers(ONE, 10, 0, 4.0, without_seeds=True)) == {peer(1), peer(3)}
    assert filled(1).peers(ONE, 10, 0, 4.0, without_seeds=True) == [peer(0)]


def test_one_filter_has_the_addresses_of_seeds_and_the_other_those_of_leechers():
    seeds, leechers = filled(3).filters(ONE, 3.0)
    assert peer(0)[:4] in ScrapeFilter(seeds)
    assert peer(1)[:4] not in ScrapeFilter(seeds)
    assert peer(1)[:4] in ScrapeFilter(leechers)
    assert filled(3).filters(OTHER, 3.0) is None


def test_the_filters_follow_the_announces():
    store = filled(1)
    before = store.filters(ONE, 1.0)
    store.announce(ONE, peer(9), 1.0, seed=True)
    assert store.filters(ONE, 1.0) != before


def test_a_sample_stays_the_same_for_its_interval():
    store = PeerStore()
    for number in range(100):
        store.announce(bytes([number]) * 20, peer(number), 0.0, seed=False)
    first = store.sample(60, 12345, 0.0)
    assert (len(first.samples), first.infohashes, first.interval_s) == (20 * SAMPLES_MAX, 100, 60)
    assert store.sample(60, 999, 59.0) == first
    assert store.sample(60, 999, 60.0).samples != first.samples


def test_an_empty_sample_lasts_until_there_is_an_infohash():
    store = PeerStore()
    assert store.sample(60, 1, 0.0).samples == b""
    store.announce(ONE, peer(1), 1.0, seed=False)
    assert store.sample(60, 1, 2.0).samples == ONE
    store.announce(OTHER, peer(1), 3.0, seed=False)
    assert store.sample(60, 1, 4.0).samples == ONE


@given(count=st.integers(0, 60), chance=st.integers(0, 2**32 - 1))
def test_a_sample_has_no_infohash_twice(count: int, chance: int):
    store = PeerStore()
    for number in range(count):
        store.announce(bytes([number]) * 20, peer(number), 0.0, seed=False)
    samples = store.sample(60, chance, 0.0).samples
    assert len({samples[at : at + 20] for at in range(0, len(samples), 20)}) == min(count, SAMPLES_MAX)


def test_an_infohash_with_the_maximum_of_peers_takes_no_more_but_renews_stored_peers():
    store = filled(3, swarm_max=3)
    assert not store.accepts(ONE)
    assert store.accepts(OTHER)
    assert not store.announce(ONE, peer(5), 5.0, seed=False)
    assert store.announce(ONE, peer(1), 5.0, seed=False)


def test_a_host_has_a_limited_number_of_announces():
    store = PeerStore(host_announces_max=2)
    stored = [store.announce(bytes([number]) * 20, peer(7), 0.0, seed=False) for number in range(4)]
    assert stored == [True, True, False, False]


def test_all_addresses_of_an_ipv6_64_are_one_host():
    store = PeerStore(host_announces_max=2)
    subscriber = [pack(f"2400:0:0:1::{number}", 1) for number in range(1, 5)]
    assert [store.announce(ONE, each, 0.0, seed=False) for each in subscriber] == [True, True, False, False]
    assert not store.announce(OTHER, subscriber[0], 0.0, seed=False)
    assert store.announce(OTHER, pack("2400:0:0:2::1", 1), 0.0, seed=False)
    store.validate()
    store.expire(EXPIRY_S)
    store.validate()
    assert store.announce(OTHER, subscriber[3], EXPIRY_S, seed=False)


def test_a_full_store_drops_the_oldest_announce():
    store = filled(5, peers_max=3)
    assert store.peers(ONE, 10, 0, 5.0) == [peer(2), peer(3), peer(4)]
    few = PeerStore(infohashes_max=1)
    few.announce(ONE, peer(0), 0.0, seed=False)
    few.announce(OTHER, peer(1), 1.0, seed=False)
    assert few.peers(ONE, 10, 0, 1.0) == []


announces = st.lists(
    st.tuples(st.integers(0, 5), st.integers(0, 20), st.integers(1, 3), st.booleans(), st.floats(0, 600)), max_size=100
)


@given(announces=announces)
def test_whatever_is_announced_the_bounds_hold(announces: list):
    store = PeerStore(peers_max=12, infohashes_max=3, swarm_max=6, host_announces_max=2)
    now = 0.0
    for infohash, number, port, seed, pause in announces:
        now += pause
        store.announce(bytes([infohash]) * 20, peer(number, port), now, seed=seed)
        store.validate()
    store.expire(now + EXPIRY_S)
    assert len(store) == store.infohash_count() == 0


def test_the_filters_of_a_large_swarm_are_computed_every_10_seconds_at_most():
    store = PeerStore()
    for number in range(FILTERS_KEPT_FROM):
        store.announce(b"h" * 20, number.to_bytes(4) + b"\0\1", 0.0, seed=False)
    before = store.filters(b"h" * 20, 0.0)
    store.announce(b"h" * 20, bytes(4) + b"\0\1", 1.0, seed=True)
    assert store.filters(b"h" * 20, FILTERS_KEPT_S - 1) == before
    assert store.filters(b"h" * 20, FILTERS_KEPT_S) != before
