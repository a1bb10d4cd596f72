"""Two or a few nodes that talk to each other."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.dht.core.endpoints import AllowedNetworks, Contact, pack, with_port
from lycosa.dht.core.events import (
    AnnounceFinished,
    LookupFinished,
    LookupProgress,
    PeerAnnounced,
    PeersWanted,
    QueryFinished,
    SavedTable,
)
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    GET_PEERS,
    PING,
    SAMPLE_INFOHASHES,
    SENT_BYTES_MAX,
    announce_arguments,
    decode_message,
    encode_error,
    encode_query,
    encode_reply,
    find_node_arguments,
    get_peers_arguments,
    return_values,
)
from lycosa.dht.core.node import EVENTS_MAX, STRANGERS_EVENTS_MAX, DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.secure_id import is_secure
from tests.dht.sim.network import Host, Network

ASKER = pack("20.0.0.9", 1)
INFOHASH = b"i" * 20
DEFAULTS = NodeConfig()


def a_host(number: int, config: NodeConfig = DEFAULTS) -> Host:
    endpoint = pack(f"20.0.{number}.1", 6881)
    return Host(endpoint, DhtNode(endpoint, config, random.Random(number).randbytes))


def two_nodes(**of_second: object) -> tuple[Network, Host, Host]:
    network = Network(1)
    one, other = a_host(1), a_host(2, NodeConfig(**of_second))
    one.node.start(None, [], 0.0)
    other.node.start(None, [one.endpoint], 0.0)
    for host in (one, other):
        network.add(host)
    network.run(30.0)
    return network, one, other


def test_two_nodes_come_to_know_each_other():
    _, one, other = two_nodes()
    assert [each.endpoint for each in one.node.table.contacts()] == [other.endpoint]
    assert [each.endpoint for each in other.node.table.contacts()] == [one.endpoint]


def test_a_node_finds_a_peer_that_another_announced():
    network, one, other = two_nodes()
    announced = other.node.announce(INFOHASH, 999, network.now)
    network.settle(other)
    network.run(network.now + 5)
    assert AnnounceFinished(announced, INFOHASH, 1, 1) in other.events
    found = other.node.get_peers(INFOHASH, network.now)
    network.settle(other)
    network.run(network.now + 5)
    assert LookupProgress(found, (with_port(other.endpoint, 999),)) in other.events
    (finished,) = (each for each in other.events if isinstance(each, LookupFinished))
    assert (finished.peers, [each.endpoint for each in finished.closest]) == (1, [one.endpoint])


def test_a_ping_is_answered():
    network, one, other = two_nodes()
    one.node.ping(other.endpoint, network.now)
    network.settle(one)
    network.run(network.now + 5)
    (event,) = (each for each in one.events if isinstance(each, QueryFinished))
    assert (event.node_id, event.error) == (other.node.node_id, "")


def test_a_ping_without_an_answer_ends():
    network, one, _ = two_nodes()
    one.node.ping(pack("20.9.9.9", 1), network.now)
    network.settle(one)
    network.run(network.now + 30)
    (event,) = (each for each in one.events if isinstance(each, QueryFinished))
    assert (event.node_id, event.error) == (None, "no answer")


# Datagrams from other nodes.


def a_node(**options: object) -> DhtNode:
    node = DhtNode(pack("20.0.0.1", 6881), NodeConfig(**options), random.Random(4).randbytes)
    node.start(None, [], 0.0)
    return node


def ask(node: DhtNode, data: bytes, source: bytes = ASKER, now: float = 1.0) -> list[bytes]:
    node.datagrams_to_send()
    node.receive_datagram(data, source, now)
    return [answer for answer, destination in node.datagrams_to_send() if destination == source]


def a_ping(node_id: bytes = b"i" * 20) -> bytes:
    return encode_query(b"aa", PING, node_id)


datagrams = st.one_of(
    st.binary(max_size=300),
    st.builds(
        lambda base, at, byte: base[: at % len(base)] + bytes([byte]) + base[at % len(base) + 1 :],
        st.sampled_from(
            [
                a_ping(),
                encode_query(b"aa", GET_PEERS, b"i" * 20, get_peers_arguments(b"h" * 20, 3, scrape=True, noseed=True)),
                encode_query(b"aa", ANNOUNCE_PEER, b"i" * 20, announce_arguments(b"h" * 20, b"token", 1, seed=True)),
                encode_query(b"aa", SAMPLE_INFOHASHES, b"i" * 20, find_node_arguments(b"h" * 20)),
                encode_reply(
                    b"2:aa", b"r" * 20, pack("20.0.0.1", 1), return_values(nodes=b"n" * 26, values=[b"v" * 6])
                ),
                encode_error(b"2:aa", 203, b"bad"),
            ]
        ),
        st.integers(0, 10_000),
        st.integers(0, 255),
    ),
)


@given(received=st.lists(datagrams, max_size=8), last=st.binary(min_size=6, max_size=6))
def test_no_datagram_raises_or_breaks_an_invariant(received: list[bytes], last: bytes):
    node = a_node()
    for number, data in enumerate(received):
        node.receive_datagram(data, last if number % 2 else pack("20.0.0.9", 1), float(number))
        node.handle_timer(float(number))
        assert all(len(answer) <= SENT_BYTES_MAX for answer, _ in node.datagrams_to_send())
        node.validate()


def test_a_query_from_port_0_is_dropped():
    node = a_node()
    assert ask(node, a_ping(), pack("20.0.0.9", 0)) == []


def test_a_query_under_our_own_id_is_dropped():
    node = a_node()
    assert ask(node, a_ping(node.node_id)) == []


def test_one_host_gets_at_most_50_answers_at_once_and_another_host_is_still_answered():
    node = a_node()
    answered = [bool(ask(node, a_ping(), pack("20.0.0.9", port))) for port in range(1, 101)]
    assert answered == [True] * 50 + [False] * 50
    assert ask(node, a_ping(), pack("20.0.0.10", 1))
    assert node.status(1.0).traffic.limited == 50


def test_errors_count_towards_the_limit_of_answers_per_host():
    node = a_node()
    broken = b"d1:ade1:q4:ping1:t2:aa1:y1:qe"
    assert sum(bool(ask(node, broken)) for _ in range(100)) == 50


def test_a_read_only_node_sends_no_errors():
    assert ask(a_node(read_only=True), b"d1:ade1:q4:ping1:t2:aa1:y1:qe") == []


def test_announces_and_requests_of_others_are_reported_if_enabled():
    for wanted in (True, False):
        node = a_node(report_infohashes=wanted)
        (answer,) = ask(node, encode_query(b"aa", GET_PEERS, b"i" * 20, get_peers_arguments(INFOHASH)))
        token = decode_message(answer).token
        ask(node, encode_query(b"aa", ANNOUNCE_PEER, b"i" * 20, announce_arguments(INFOHASH, token, 7)))
        expected = [PeersWanted(INFOHASH), PeerAnnounced(INFOHASH, pack("20.0.0.9", 7), seed=False)]
        assert [node.next_event() for _ in expected] == (expected if wanted else [None, None])


def test_a_flood_of_requests_does_not_displace_our_own_results():
    node = a_node(report_infohashes=True)
    operation = node.ping(ASKER, 0.0)
    while node.next_timer() < 60.0:
        node.handle_timer(node.next_timer())
    wanted = encode_query(b"aa", GET_PEERS, b"i" * 20, get_peers_arguments(INFOHASH))
    for number in range(EVENTS_MAX + 100):
        node.receive_datagram(wanted, pack(f"20.{number >> 8}.{number & 255}.1", 1), 60.0 + number / 100)
    assert node.traffic.answers_out > EVENTS_MAX
    events = list(iter(node.next_event, None))
    assert any(isinstance(each, QueryFinished) and each.operation_id == operation for each in events)
    assert len(events) == STRANGERS_EVENTS_MAX


@pytest.mark.parametrize("transaction", [b"i-0e", b"i007e", b"i-7e", b"i00e", b"i18446744073709551615e"])
def test_a_packet_of_an_old_draft_with_an_unusual_integer_as_transaction_is_answered(transaction: bytes):
    packet = b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t%b1:y1:qe" % transaction
    (answer,) = ask(a_node(), packet)
    assert b"1:ti%de" % int(transaction[1:-1]) in answer


@pytest.mark.parametrize("transaction", [b"i-e", b"ie", b"i--1e", b"i1", b"i1x", b"i" + b"9" * 21 + b"e", b"le", b"de"])
def test_a_packet_with_an_invalid_transaction_is_dropped(transaction: bytes):
    node = a_node()
    assert ask(node, b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t%b1:y1:qe" % transaction) == []
    assert node.traffic.malformed == 1


# The contacts of a node.


def test_routers_are_queried_but_enter_neither_table_nor_file():
    network = Network(1)
    router, joining = a_host(1), a_host(2)
    router.node.start(None, [], 0.0)
    joining.node.start(None, [], 0.0, routers=[router.endpoint])
    for host in (router, joining):
        network.add(host)
    network.run(3000.0)
    assert router.node.table.counts(network.now).good == 1
    assert len(joining.node.table) == 0
    assert joining.node.save(network.now).contacts == ()
    saved = SavedTable(b"s" * 20, (Contact(b"r" * 20, router.endpoint),))
    joining.node.start(saved, [], network.now, routers=[router.endpoint])
    assert joining.node.save(network.now).contacts == ()


def test_a_contact_at_a_private_address_is_not_pinged():
    node = a_node()
    ask(node, a_ping(), pack("10.0.0.1", 25))
    node.handle_timer(2.0)
    assert node.datagrams_to_send() == []


def test_a_contact_at_an_allowed_network_is_pinged():
    node = a_node(allowed_networks=AllowedNetworks(["10.0.0.0/8"]))
    ask(node, a_ping(), pack("10.0.0.1", 25))
    node.handle_timer(2.0)
    assert [destination for _, destination in node.datagrams_to_send()] == [pack("10.0.0.1", 25)]


def test_a_node_at_a_private_address_that_the_user_pings_is_not_returned_to_others():
    node = a_node()
    node.ping(pack("10.0.0.1", 25), 1.0)
    ((ping, _),) = node.datagrams_to_send()
    transaction = decode_message(ping).transaction
    node.receive_datagram(encode_reply(transaction, b"r" * 20, node.endpoint), pack("10.0.0.1", 25), 1.1)
    assert isinstance(node.next_event(), QueryFinished)
    assert len(node.table) == 0


def test_an_answer_under_another_id_evicts_the_contact():
    network, one, other = two_nodes()
    other.node.table.rebase(b"another id, 20 bytes", network.now)
    one.node.find_node(INFOHASH, network.now)
    network.settle(one)
    network.run(network.now + 2)
    assert len(one.node.table) == 0
    (finished,) = (each for each in one.events if isinstance(each, LookupFinished))
    assert finished.closest == ()


def test_while_our_link_is_down_no_contact_turns_bad():
    network, one, other = two_nodes()
    network.remove(other)
    for _ in range(6):
        network.run(network.now + 60)
        one.node.find_node(INFOHASH, network.now)
        network.settle(one)
    assert one.node.table.counts(network.now).bad == 0


def contact_in_bucket(node: DhtNode, index: int, number: int) -> Contact:
    """Return a contact whose id shares exactly the first `index` bits with the id of the node.

    Contacts with the same `index` differ by their `number`.
    """
    first = node.node_id[0] ^ (0x80 >> index)
    return Contact(bytes([first, number]) + node.node_id[2:], pack(f"20.{index + 1}.{number}.1", 1))


def test_a_contact_that_could_not_be_checked_while_our_link_was_down_is_checked_later():
    node = a_node()
    other = [contact_in_bucket(node, 0, number) for number in range(9)]
    for each in [contact_in_bucket(node, 1, 0), *other[:8]]:
        node.table.responded(each, 0.0)
    assert node.table.responded(other[8], 1000.0) == other[0]
    node._ping(other[0], 1000.0)
    node.handle_timer(1040.0)
    assert node.table.counts(1040.0).bad == 0
    assert node.table.responded(other[8], 1100.0) == other[0]


def test_a_contact_that_is_gone_turns_bad_while_others_are_heard():
    network, one, other = two_nodes()
    third = a_host(3)
    third.node.start(None, [one.endpoint], network.now)
    network.add(third)
    network.run(network.now + 30)
    assert len(one.node.table) == 2
    network.remove(other)
    for _ in range(6):
        one.node.find_node(INFOHASH, network.now)
        network.settle(one)
        network.run(network.now + 60)
    assert one.node.table.counts(network.now).bad == 1
    assert [each.endpoint for each in one.node.closest_good(INFOHASH, 8, network.now)] == [third.endpoint]


def test_a_saved_id_is_used_if_it_fits_the_address():
    saved = SavedTable(a_node().node_id, ())
    node = DhtNode(pack("20.0.0.1", 1), NodeConfig(), random.Random(9).randbytes)
    node.start(saved, [], 0.0)
    assert node.node_id == saved.node_id
    moved = DhtNode(pack("21.0.0.1", 1), NodeConfig(), random.Random(9).randbytes)
    moved.start(saved, [], 0.0)
    assert moved.node_id != saved.node_id
    assert is_secure(moved.node_id, pack("21.0.0.1", 1)[:4])


def test_no_timer_is_set_before_the_start():
    node = DhtNode(pack("20.0.0.1", 1), NodeConfig(), random.Random(9).randbytes)
    assert node.next_timer() is None


def test_saved_contacts_at_private_addresses_are_queried_only_if_allowed():
    saved = SavedTable(b"n" * 20, tuple(Contact(bytes([n]) * 20, pack(f"10.0.{n}.1", 25)) for n in range(3)))
    for config, asked in ((DEFAULTS, 0), (NodeConfig(allowed_networks=AllowedNetworks(["10.0.0.0/8"])), 3)):
        node = a_host(1, config).node
        node.start(saved, [], 0.0)
        node.handle_timer(0.0)
        assert len(node.table) == asked
        assert bool(node.datagrams_to_send()) == bool(asked)
