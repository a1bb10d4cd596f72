from __future__ import annotations

import random

from lycosa.dht.core.endpoints import Contact, pack
from lycosa.dht.core.ids import distance
from lycosa.dht.core.limits import QUERIES_BURST
from lycosa.dht.core.routing.lookup import ALPHA, ASKED_MAX, CANDIDATES_MAX, Lookup
from lycosa.dht.core.routing.table import K

TARGET = bytes(20)
OWN_ID = b"\xff" * 20


def node(number: int, ip: str = "") -> Contact:
    """Return a contact; the lower the number, the closer to the target."""
    return Contact(
        bytes([1, number >> 8, number & 255]) + bytes(17), pack(ip or f"20.{number >> 8}.{number & 255}.1", 1)
    )


def run(lookup: Lookup, knows: dict[Contact, list[Contact]]) -> int:
    """Answer as nodes that know these contacts, until the lookup is over. Return the number of queries."""
    asked = 0
    while not lookup.is_finished():
        batch = lookup.to_ask()
        assert batch, "the lookup neither asks nor ends"
        for each in batch:
            asked += 1
            lookup.answered(each, knows.get(each, []), b"token")
    return asked


def test_a_lookup_queries_the_closest_nodes_first_and_three_at_a_time():
    lookup = Lookup(TARGET, OWN_ID, [node(number) for number in (9, 2, 7, 1, 5)])
    assert lookup.to_ask() == [node(1), node(2), node(5)]
    assert lookup.to_ask() == []
    lookup.answered(node(2), [])
    assert lookup.to_ask() == [node(7)]


def test_a_lookup_ends_with_the_k_closest_of_all_nodes():
    chance = random.Random(3)
    nodes = [node(number) for number in chance.sample(range(500), 200)]
    by_distance = sorted(nodes, key=lambda each: distance(each.id, TARGET))
    knows = {each: [*by_distance[max(0, place // 2 - 4) : place // 2 + 4]] for place, each in enumerate(by_distance)}
    lookup = Lookup(TARGET, OWN_ID, chance.sample(nodes, 8))
    asked = run(lookup, knows)
    assert [each.contact for each in lookup.closest()] == by_distance[:K]
    assert asked < 60


def test_a_lookup_queries_no_node_beyond_the_k_closest_that_answered():
    lookup = Lookup(TARGET, OWN_ID, [node(number) for number in range(30)])
    assert run(lookup, {}) <= K + ALPHA - 1


def test_a_late_answer_does_not_delay_the_lookup_but_counts():
    lookup = Lookup(TARGET, OWN_ID, [node(number) for number in range(4)])
    assert lookup.to_ask() == [node(0), node(1), node(2)]
    lookup.stalled(node(0))
    assert lookup.to_ask() == [node(3)]
    lookup.answered(node(0), [], b"late")
    assert lookup.closest()[0] == (node(0), b"late")


def test_late_answers_are_awaited_until_a_node_has_answered():
    lookup = Lookup(TARGET, OWN_ID, [node(0), node(1)])
    lookup.to_ask()
    lookup.stalled(node(0))
    lookup.stalled(node(1))
    assert not lookup.is_finished()
    lookup.answered(node(1), [])
    assert lookup.is_finished()


def test_failed_nodes_do_not_count():
    lookup = Lookup(TARGET, OWN_ID, [node(0), node(1)])
    lookup.to_ask()
    lookup.failed(node(0))
    lookup.answered(node(1), [])
    assert lookup.is_finished()
    assert [each.contact for each in lookup.closest()] == [node(1)]


def test_an_unexpected_answer_is_ignored():
    lookup = Lookup(TARGET, OWN_ID, [node(0)])
    lookup.answered(node(0), [node(3)], b"token")
    assert lookup.closest() == []


def test_ids_that_do_not_fit_their_address_do_not_count():
    """BEP 42: such answers do not end a lookup, and their tokens are not used."""
    lookup = Lookup(TARGET, OWN_ID, [node(number) for number in range(20)], is_secure=lambda each: each.id[2] >= 10)
    run(lookup, {})
    assert [each.contact for each in lookup.closest_with_token()] == [node(number) for number in range(10, 18)]


def test_one_network_gives_only_two_of_the_closest_nodes():
    crowd = [node(number, ip=f"30.0.0.{number}") for number in range(1, 9)]
    others = [node(number) for number in range(20, 40)]
    lookup = Lookup(TARGET, OWN_ID, crowd + others)
    run(lookup, {})
    closest = [each.contact for each in lookup.closest()]
    assert closest == crowd[:2] + others[:6]


def test_one_address_with_many_ids_is_queried_until_it_has_answered():
    crowd = [node(number, ip="30.0.0.1") for number in range(1, 50)]
    lookup = Lookup(TARGET, OWN_ID, [*crowd, node(100)])
    assert run(lookup, {}) <= ALPHA + 1


def ask_silent(lookup: Lookup) -> list[Contact]:
    """Let all queries fail. Return the queried contacts."""
    asked: list[Contact] = []
    while batch := lookup.to_ask():
        asked += batch
        for each in batch:
            lookup.failed(each)
    assert lookup.is_finished()
    return asked


def test_a_silent_host_with_many_ids_and_ports_gets_no_more_queries_than_its_burst():
    """More queries would wait for the limit of that host, and delay the lookup."""
    crowd = [Contact(node(number).id, pack("30.0.0.1", number)) for number in range(1, 50)]
    assert ask_silent(Lookup(TARGET, OWN_ID, [*crowd, node(100)])) == [*crowd[:QUERIES_BURST], node(100)]
    site = [node(number, ip=f"2400::{number}") for number in range(1, 50)]
    assert ask_silent(Lookup(TARGET, OWN_ID, [*site, node(100)])) == [*site[:QUERIES_BURST], node(100)]


def test_nodes_that_share_a_local_address_are_all_queried():
    crowd = [Contact(node(number).id, pack("127.0.0.1", number)) for number in range(1, 50)]
    assert ask_silent(Lookup(TARGET, OWN_ID, crowd, is_local=lambda _: True)) == crowd


def test_nodes_without_a_token_get_no_announce():
    lookup = Lookup(TARGET, OWN_ID, [node(0), node(1)])
    lookup.to_ask()
    lookup.answered(node(0), [], b"")
    lookup.answered(node(1), [], b"t")
    assert lookup.closest_with_token() == [(node(1), b"t")]


def test_a_lookup_never_queries_our_own_id():
    lookup = Lookup(TARGET, OWN_ID, [Contact(OWN_ID, pack("20.0.0.1", 1))])
    assert lookup.to_ask() == []
    assert lookup.is_finished()


def test_a_lookup_ends_despite_an_endless_chain_of_closer_nodes():
    lookup = Lookup(TARGET, OWN_ID, [node(60_000)])
    closer = iter(range(59_999, 0, -1))
    asked = 0
    while not lookup.is_finished():
        for each in lookup.to_ask():
            asked += 1
            lookup.answered(each, [node(next(closer)) for _ in range(K)], b"t")
    assert asked == ASKED_MAX
    assert len(lookup._candidates) <= CANDIDATES_MAX


def test_each_peer_is_reported_as_new_only_once():
    lookup = Lookup(TARGET, OWN_ID, [])
    one, other = pack("20.0.0.1", 1), pack("20.0.0.2", 2)
    assert lookup.add_peers([one, one]) == [one]
    assert lookup.add_peers([one, other]) == [other]
