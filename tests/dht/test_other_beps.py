"""The demands of BEPs 32, 33, 42, 43, 45 and 51 that have no other test (docs/dht.md)."""

from __future__ import annotations

import random

import pytest

from lycosa.dht.core.bencode import Value
from lycosa.dht.core.endpoints import IPV4, IPV6, Contact, pack, split_contacts
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    FIND_NODE,
    GET_PEERS,
    PING,
    SAMPLE_INFOHASHES,
    SENT_BYTES_MAX,
    WANT_NODES,
    WANT_NODES6,
    announce_arguments,
    encode_query,
    encode_reply,
    find_node_arguments,
    get_peers_arguments,
    return_values,
    sample_values,
)
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.responder import Neighbourhood
from lycosa.dht.core.scrape_filter import ScrapeFilter
from lycosa.dht.core.secure_id import is_secure, secure_id
from tests.dht.remotes import (
    ASKER,
    INFOHASH,
    a_node,
    ask,
    common_prefix_bits,
    meet,
    queries,
    remote,
    returned,
    run_until,
    sent,
)

ASKER6 = Contact(b"6" * 20, pack("2a00:1::1", 6881))
BOTH = WANT_NODES | WANT_NODES6


def remote6(number: int) -> Contact:
    return Contact(random.Random(number).randbytes(20), pack(f"2a01:{number:x}::1", 6881))


def two_families() -> tuple[DhtNode, DhtNode]:
    """Return an IPv4 and an IPv6 node of one process, with 20 contacts each at most."""
    shared = Neighbourhood()
    four, six = a_node(shared=shared), a_node("2a02::1", shared=shared)
    for number in range(20):
        meet(four, remote(number), 0.0)
        meet(six, remote6(number), 0.0)
    for node in (four, six):
        list(sent(node))
    return four, six


def announce(node: DhtNode, peer: Contact, infohash: bytes = INFOHASH, *, seed: bool = False, now: float = 1.0) -> None:
    token = returned(ask(node, GET_PEERS, get_peers_arguments(infohash), peer, now))[b"token"]
    assert isinstance(token, bytes)
    arguments = announce_arguments(infohash, token, 7000, seed=seed)
    assert ask(node, ANNOUNCE_PEER, arguments, peer, now)[b"y"] == b"r"


def peers(node: DhtNode, asker: Contact = ASKER, **flags: bool) -> list[bytes]:
    values = returned(ask(node, GET_PEERS, get_peers_arguments(INFOHASH, **flags), asker)).get(b"values", [])
    assert isinstance(values, list)
    return [bytes(each) for each in values]  # type: ignore[arg-type]


def text(values: dict[bytes, Value], key: bytes) -> bytes:
    value = values[key]
    assert isinstance(value, bytes)
    return value


# BEP 32: IPv6.


@pytest.mark.parametrize("method", [FIND_NODE, GET_PEERS, SAMPLE_INFOHASHES])
@pytest.mark.parametrize(
    ("want", "over_ipv4", "over_ipv6"),
    [
        (0, {b"nodes"}, {b"nodes6"}),
        (WANT_NODES, {b"nodes"}, {b"nodes"}),
        (WANT_NODES6, {b"nodes6"}, {b"nodes6"}),
        (BOTH, {b"nodes", b"nodes6"}, {b"nodes", b"nodes6"}),
    ],
)
def test_answers_have_the_nodes_that_want_selects(
    method: bytes, want: int, over_ipv4: set[bytes], over_ipv6: set[bytes]
):
    make = get_peers_arguments if method == GET_PEERS else find_node_arguments
    for node, asker, expected in zip(two_families(), (ASKER, ASKER6), (over_ipv4, over_ipv6), strict=True):
        values = returned(ask(node, method, make(INFOHASH, want), asker))
        assert values.keys() & {b"nodes", b"nodes6"} == expected
        if b"nodes" in expected:
            assert len(split_contacts(text(values, b"nodes"), IPV4)) == 8
        if b"nodes6" in expected:
            assert len(split_contacts(text(values, b"nodes6"), IPV6)) == 8


def test_unknown_flags_of_want_are_ignored():
    four, _ = two_families()
    arguments = find_node_arguments(INFOHASH) + b"4:wantl2:n82:n6i4ee"
    assert returned(ask(four, FIND_NODE, arguments)).keys() & {b"nodes", b"nodes6"} == {b"nodes6"}


def test_each_family_has_its_own_table_and_peers():
    four, six = two_families()
    announce(four, remote(50))
    announce(six, remote6(50))
    assert {len(contact.endpoint) for contact in four.table.contacts()} == {6}
    assert {len(contact.endpoint) for contact in six.table.contacts()} == {18}
    assert [len(peer) for peer in peers(four)] == [6]
    assert [len(peer) for peer in peers(six, ASKER6)] == [18]


def test_no_answer_is_longer_than_1024_bytes():
    four, six = two_families()
    for number in range(120):
        announce(four, remote(100 + number), seed=number % 2 == 0, now=float(number))
        announce(six, remote6(100 + number), seed=number % 2 == 0, now=float(number))
        announce(four, remote(100 + number), random.Random(number).randbytes(20), now=float(number))
    for node, asker in ((four, ASKER), (six, ASKER6)):
        for method, arguments in (
            (GET_PEERS, get_peers_arguments(INFOHASH, BOTH, scrape=True)),
            (GET_PEERS, get_peers_arguments(INFOHASH, BOTH)),
            (SAMPLE_INFOHASHES, find_node_arguments(INFOHASH, BOTH)),
        ):
            node.receive_datagram(encode_query(b"t" * 64, method, asker.id, arguments), asker.endpoint, 200.0)
            (length,) = (len(data) for data, to in node.datagrams_to_send() if to == asker.endpoint)
            assert 300 < length <= SENT_BYTES_MAX


def test_datagrams_longer_than_1024_bytes_are_read():
    node = a_node()
    node.get_peers(INFOHASH, 1.0)
    node.ping(remote(1).endpoint, 1.0)
    ((ping, _),) = queries(node)
    values = return_values(values=[pack("1.2.3.4", port) for port in range(1, 200)])
    data = encode_reply(ping.transaction, remote(1).id, node.endpoint, values)
    assert len(data) > 1500
    node.receive_datagram(data, remote(1).endpoint, 1.1)
    assert remote(1) in node.table


def test_contacts_of_both_families_are_requested_if_the_process_has_a_node_of_each():
    shared = Neighbourhood()
    four, _ = a_node(shared=shared), a_node("2a02::1", shared=shared)
    meet(four, remote(1), 1.0)
    four.handle_timer(1.0)
    assert {query.want for query, _ in queries(four) if query.method == FIND_NODE} == {BOTH}
    alone = a_node()
    meet(alone, remote(1), 1.0)
    alone.handle_timer(1.0)
    assert {query.want for query, _ in queries(alone) if query.method == FIND_NODE} == {0}


# BEP 33: scrapes.


def test_a_scrape_has_filters_of_seeds_and_peers():
    node = a_node()
    seeds, leechers = [remote(1), remote(2)], [remote(3)]
    for peer in seeds:
        announce(node, peer, seed=True)
    for peer in leechers:
        announce(node, peer)
    values = returned(ask(node, GET_PEERS, get_peers_arguments(INFOHASH, scrape=True)))
    for key, expected in ((b"BFsd", seeds), (b"BFpe", leechers)):
        filter_ = ScrapeFilter()
        for peer in expected:
            filter_.insert(peer.endpoint[:4])
        assert values[key] == bytes(filter_)
    assert not {b"BFsd", b"BFpe"} & returned(ask(node, GET_PEERS, get_peers_arguments(INFOHASH))).keys()


def test_the_latest_announce_of_an_address_counts():
    node = a_node()
    announce(node, remote(1), seed=True)
    announce(node, Contact(remote(1).id, remote(1).endpoint[:4] + b"\x11\x11"))
    assert len(peers(node)) == 1
    assert len(peers(node, noseed=True)) == 1


def test_only_leechers_are_returned_with_noseed():
    node = a_node()
    announce(node, remote(1), seed=True)
    announce(node, remote(2))
    assert peers(node, noseed=True) == [remote(2).endpoint[:4] + (7000).to_bytes(2)]
    assert len(peers(node)) == 2


# BEP 42: secure ids.


def test_every_answer_and_error_has_the_address_of_the_querying_node():
    node = a_node()
    messages = [
        ask(node, PING),
        ask(node, GET_PEERS, get_peers_arguments(INFOHASH)),
        ask(node, FIND_NODE),
        ask(node, b"vote"),
    ]
    assert [message[b"ip"] for message in messages] == [ASKER.endpoint] * 4


def test_the_node_id_follows_the_address_that_most_networks_report():
    node = DhtNode(pack("0.0.0.0", 6881), NodeConfig(), random.Random(1).randbytes)
    node.start(None, [], 0.0)
    before = node.node_id
    for number in range(12):
        contact = remote(number)
        node.ping(contact.endpoint, 1.0)
        (ping,) = (query for query, to in queries(node) if to == contact.endpoint)
        seen = "6.6.6.6" if number < 4 else "20.1.2.3"
        node.receive_datagram(encode_reply(ping.transaction, contact.id, pack(seen, 1)), contact.endpoint, 1.0)
        if number == 3:
            assert node.node_id == before
    assert is_secure(node.node_id, pack("20.1.2.3", 1)[:4])
    assert not is_secure(node.node_id, pack("6.6.6.6", 1)[:4])


def test_queries_from_ids_that_do_not_fit_their_address_are_answered():
    insecure = Contact(bytes(20), ASKER.endpoint)
    assert not is_secure(insecure.id, insecure.endpoint[:4])
    assert ask(a_node(), PING, asker=insecure)[b"y"] == b"r"


def test_an_announce_goes_only_to_nodes_whose_ids_fit_their_addresses():
    node = a_node()
    secure = [Contact(secure_id(remote(n).endpoint[:4], remote(n).id), remote(n).endpoint) for n in range(5)]
    insecure = [remote(n) for n in range(5, 10)]
    for contact in [*secure, *insecure]:
        meet(node, contact, 0.0)
    run_until(node, 1.0, answering=[*secure, *insecure])
    node.announce(INFOHASH, 7000, 10.0)
    announced = set()
    now = 10.0
    for _ in range(100):
        for query, to in queries(node):
            contact = next(each for each in [*secure, *insecure] if each.endpoint == to)
            if query.method == ANNOUNCE_PEER:
                announced.add(contact)
            reply = encode_reply(query.transaction, contact.id, node.endpoint, return_values(nodes=b"", token=b"t"))
            node.receive_datagram(reply, to, now)
        now += 0.1
        node.handle_timer(now)
    assert announced == set(secure)


# BEP 43: read-only nodes.


def test_a_read_only_node_answers_nothing_and_says_so_in_its_queries():
    node = a_node(config=NodeConfig(read_only=True))
    for method, arguments in ((PING, b""), (GET_PEERS, get_peers_arguments(INFOHASH)), (b"vote", b"")):
        node.receive_datagram(encode_query(b"aa", method, ASKER.id, arguments), ASKER.endpoint, 1.0)
    assert list(sent(node)) == []
    node.ping(remote(1).endpoint, 1.0)
    assert [message[b"ro"] for message, _ in sent(node)] == [1]


def test_a_read_only_node_is_answered_and_neither_pinged_nor_added():
    node = a_node()
    packet = encode_query(b"aa", PING, ASKER.id, read_only=True)
    node.receive_datagram(packet, ASKER.endpoint, 1.0)
    assert [(message[b"y"], to) for message, to in sent(node)] == [(b"r", ASKER.endpoint)]
    assert [to for _, _, to in run_until(node, 60.0, answering=[ASKER])] == []
    assert len(node.table) == 0


# BEP 45: several addresses.


def test_nodes_at_several_addresses_have_ids_far_apart():
    shared = Neighbourhood()
    ids = [a_node(f"20.{n}.1.1", shared=shared).node_id for n in range(8)]
    assert max(common_prefix_bits(one, other) for one in ids for other in ids if one != other) < 16
    assert len(set(ids)) == 8


def test_a_token_is_valid_only_at_the_address_that_issued_it():
    shared = Neighbourhood()
    one, other = a_node(shared=shared), a_node("20.2.1.1", shared=shared)
    token = text(returned(ask(one, GET_PEERS, get_peers_arguments(INFOHASH))), b"token")
    assert ask(other, ANNOUNCE_PEER, announce_arguments(INFOHASH, token, 7000))[b"y"] == b"e"


# BEP 51: samples.


def test_samples_are_sent_even_if_empty():
    values = returned(ask(a_node(), SAMPLE_INFOHASHES, find_node_arguments(INFOHASH)))
    assert (values[b"samples"], values[b"num"]) == (b"", 0)
    assert isinstance(values[b"interval"], int)
    assert 0 <= values[b"interval"] <= 21_600
    assert values[b"nodes"] == b""


def test_a_sample_is_a_part_of_the_infohashes_and_stays_the_same_for_its_interval():
    node = a_node()
    infohashes = {random.Random(n).randbytes(20) for n in range(100)}
    for number, infohash in enumerate(sorted(infohashes)):
        announce(node, remote(number), infohash)
    first, again, later = (
        returned(ask(node, SAMPLE_INFOHASHES, find_node_arguments(INFOHASH), now=now)) for now in (2.0, 1700.0, 1900.0)
    )
    samples = text(first, b"samples")
    assert {samples[at : at + 20] for at in range(0, len(samples), 20)} < infohashes
    assert first[b"num"] == 100
    assert again[b"samples"] == samples != later[b"samples"]


def test_a_node_is_not_queried_again_within_its_interval():
    node = a_node()
    contact = remote(1)
    node.sample_infohashes(contact, INFOHASH, 1.0)
    ((query, _),) = queries(node)
    values = sample_values(INFOHASH, 1, 600, nodes=b"")
    node.receive_datagram(encode_reply(query.transaction, contact.id, node.endpoint, values), contact.endpoint, 1.1)
    node.sample_infohashes(contact, INFOHASH, 600.0)
    assert [query for query, _ in queries(node) if query.method == SAMPLE_INFOHASHES] == []
    node.sample_infohashes(contact, INFOHASH, 602.0)
    assert [query.method for query, to in queries(node) if to == contact.endpoint] == [SAMPLE_INFOHASHES]
