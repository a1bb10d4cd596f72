"""The sentences of BEP 5 with "must" or "should": a test for each that has no other test (docs/dht.md)."""

from __future__ import annotations

import random

import pytest

from lycosa.dht.core.endpoints import Contact, pack, pack_contacts, split_contacts
from lycosa.dht.core.ids import distance
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    FIND_NODE,
    GET_PEERS,
    PING,
    SAMPLE_INFOHASHES,
    announce_arguments,
    find_node_arguments,
    get_peers_arguments,
)
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.routing.table import RoutingTable
from tests.dht.remotes import (
    ASKER,
    INFOHASH,
    MINUTE,
    a_node,
    a_node_with,
    answer,
    ask,
    closest,
    id_with_prefix,
    meet,
    queries,
    remote,
    returned,
    run_until,
    sent,
)

# Routing table.


def test_a_node_that_only_queried_us_is_returned_after_it_has_answered_us():
    node = a_node()
    assert returned(ask(node, FIND_NODE, find_node_arguments(ASKER.id)))[b"nodes"] == b""
    node.handle_timer(2.0)
    (ping,) = (query for query, to in queries(node) if to == ASKER.endpoint)
    assert ping.method == PING
    answer(node, ping, ASKER, 2.1)
    list(sent(node))
    assert returned(ask(node, FIND_NODE, find_node_arguments(ASKER.id), remote(1), 3.0))[b"nodes"] == pack_contacts(
        [ASKER]
    )


def test_contacts_that_were_silent_for_15_minutes_are_not_returned():
    node, kept = a_node_with(5)
    for now, count in ((14.9 * MINUTE, len(kept)), (15.1 * MINUTE, 0)):
        nodes = returned(ask(node, FIND_NODE, find_node_arguments(INFOHASH), now=now))[b"nodes"]
        assert isinstance(nodes, bytes)
        assert len(nodes) == 26 * count


def test_a_contact_that_answered_once_stays_good_by_its_queries():
    node, (contact, *_) = a_node_with(1)
    for now in range(0, 3600, 600):
        assert returned(ask(node, PING, asker=contact, now=float(now)))[b"id"] == node.node_id
    nodes = returned(ask(node, FIND_NODE, find_node_arguments(INFOHASH), now=3600.0))[b"nodes"]
    assert nodes == pack_contacts([contact])


def test_any_contact_fits_into_an_empty_table_and_only_our_own_bucket_splits():
    own = bytes(20)
    table = RoutingTable(own, 0.0)
    far = [Contact(b"\x80" + bytes([n]) * 19, remote(n).endpoint) for n in range(20)]
    for contact in far[:8]:
        table.responded(contact, 0.0)
    assert table.counts(0.0)[0] == 8
    assert table.counts(0.0).buckets == 1
    for contact in far[8:]:
        table.responded(contact, 0.0)
    near = [Contact(bytes([0, n + 1]) + bytes(18), remote(100 + n).endpoint) for n in range(20)]
    for contact in near:
        table.responded(contact, 0.0)
    table.validate()
    assert set(far[:8]) <= set(table.contacts())
    assert set(far[8:]).isdisjoint(table.contacts())
    assert sum(contact in set(near) for contact in table.contacts()) > 8


@pytest.mark.parametrize("change", ["answer", "insert", "replace"])
def test_a_bucket_counts_as_changed_after_an_answer_a_new_or_a_replaced_contact(change: str):
    table = RoutingTable(bytes(20), 0.0)
    known = [Contact(b"\x80" + bytes([n]) * 19, remote(n).endpoint) for n in range(7 if change == "insert" else 8)]
    for contact in [*known, Contact(b"\x01" * 20, remote(50).endpoint)]:
        table.responded(contact, 0.0)
    newcomer = Contact(b"\x81" * 20, remote(99).endpoint)
    if change == "replace":
        for _ in range(3):
            table.failed(known[0], 50.0)
    assert table.changes()[0] == 0.0
    table.responded(known[3] if change == "answer" else newcomer, 100.0)
    assert table.changes()[0] == 100.0


def test_buckets_without_changes_for_15_minutes_are_searched():
    node, kept = a_node_with(30)
    for contact in kept:  # their queries keep them good, but do not count as changes
        ask(node, PING, asker=contact, now=10 * MINUTE)
    searched_before = [query for at, query, _ in run_until(node, 14.9 * MINUTE, answering=kept) if at > MINUTE]
    assert [query.method for query in searched_before] == []
    for contact in kept:
        ask(node, PING, asker=contact, now=14.9 * MINUTE)
    assert max(node.table.changes()) < MINUTE
    asked = run_until(node, 18 * MINUTE, answering=kept)
    searched = {query.target for _, query, _ in asked if query.method == FIND_NODE}
    assert 0 in {160 - distance(target, node.node_id).bit_length() for target in searched}
    assert min(node.table.changes()) > 15 * MINUTE, "the other buckets changed when their contacts answered the search"


def test_the_own_id_is_searched_at_the_first_contact_and_after_a_start():
    node = a_node()
    node.handle_timer(0.5)
    assert queries(node) == []
    meet(node, remote(1), 1.0)
    node.handle_timer(1.0)
    assert (FIND_NODE, node.node_id) in {(query.method, query.target) for query, _ in queries(node)}
    again = DhtNode(node.endpoint, NodeConfig(), random.Random(6).randbytes)
    again.start(node.save(1.0), [], 0.0)
    asked = run_until(again, 5.0, answering=[])
    assert (FIND_NODE, again.node_id, remote(1).endpoint) in {
        (query.method, query.target, to) for _, query, to in asked
    }


def test_the_next_run_has_the_contacts_of_the_saved_table():
    node, kept = a_node_with(30)
    again = DhtNode(node.endpoint, NodeConfig(), random.Random(6).randbytes)
    again.start(node.save(1.0), [], 0.0)
    assert again.node_id == node.node_id
    assert set(again.table.contacts()) == set(kept)


# PORT messages and torrent files.


def test_the_node_of_a_port_message_enters_the_table_if_it_answers_a_ping():
    node = a_node()
    node.ping(remote(1).endpoint, 1.0)
    node.ping(remote(2).endpoint, 1.0)
    pings = {to: query for query, to in queries(node)}
    assert {query.method for query in pings.values()} == {PING}
    answer(node, pings[remote(2).endpoint], remote(2), 1.1)
    assert list(node.table.contacts()) == [remote(2)]


def test_the_closest_good_contacts_are_available_for_torrent_files():
    node, kept = a_node_with(60)
    assert set(node.closest_good(INFOHASH, 8, 1.0)) == closest(kept, INFOHASH)
    assert node.closest_good(INFOHASH, 8, 16 * MINUTE) == []


# KRPC.


def test_transactions_are_short_and_cannot_be_guessed():
    node = a_node()
    for number in range(20):
        node.ping(remote(number).endpoint, 1.0)
    transactions = [message[b"t"] for message, _ in sent(node)]
    assert len(set(transactions)) == 20
    assert all(isinstance(each, bytes) and 2 <= len(each) <= 4 for each in transactions)
    assert sorted(transactions) != transactions


def test_every_message_has_our_version_of_four_bytes():
    node = a_node()
    node.ping(remote(1).endpoint, 1.0)
    messages = [message for message, _ in sent(node)]
    messages += [
        ask(node, PING),
        ask(node, GET_PEERS, get_peers_arguments(INFOHASH)),
        ask(node, b"vote"),
        ask(node, FIND_NODE),
    ]
    assert {message[b"y"] for message in messages} == {b"q", b"r", b"e"}
    for message in messages:
        assert isinstance(message[b"v"], bytes)
        assert len(message[b"v"]) == 4


@pytest.mark.parametrize("version", [b"", b"1:v0:", b"1:vi7e", b"1:v9:very long"])
def test_a_query_is_answered_with_any_version_or_without_one(version: bytes):
    node = a_node()
    packet = b"d1:ad2:id20:" + ASKER.id + b"e1:q4:ping1:t2:aa" + version + b"1:y1:qe"
    node.receive_datagram(packet, ASKER.endpoint, 1.0)
    assert next(sent(node))[0][b"y"] == b"r"


def test_every_query_and_answer_has_a_node_id():
    node = a_node()
    node.ping(remote(1).endpoint, 1.0)
    ((message, _),) = sent(node)
    arguments = message[b"a"]
    assert isinstance(arguments, dict)
    assert arguments[b"id"] == node.node_id
    for method, sends in (
        (PING, b""),
        (FIND_NODE, find_node_arguments(INFOHASH)),
        (GET_PEERS, get_peers_arguments(INFOHASH)),
    ):
        assert returned(ask(node, method, sends))[b"id"] == node.node_id


@pytest.mark.parametrize("seed", range(5))
def test_find_node_returns_the_8_closest_good_contacts(seed: int):
    node, kept = a_node_with(80)
    assert len(kept) > 20
    target = random.Random(seed).randbytes(20)
    target = id_with_prefix(node.node_id, seed, target)
    nodes = returned(ask(node, FIND_NODE, find_node_arguments(target)))[b"nodes"]
    assert isinstance(nodes, bytes)
    assert set(split_contacts(nodes, 4)) == closest(kept, target)


def test_find_node_returns_the_target_itself():
    node, kept = a_node_with(40)
    for contact in kept:
        nodes = returned(
            ask(node, FIND_NODE, find_node_arguments(contact.id), now=2.0, asker=remote(kept.index(contact) + 500))
        )
        assert contact.id + contact.endpoint in bytes(nodes[b"nodes"])  # type: ignore[arg-type]


def test_get_peers_without_peers_returns_the_closest_contacts_and_a_short_token():
    node, kept = a_node_with(80)
    values = returned(ask(node, GET_PEERS, get_peers_arguments(INFOHASH)))
    assert b"values" not in values
    assert set(split_contacts(bytes(values[b"nodes"]), 4)) == closest(kept, INFOHASH)  # type: ignore[arg-type]
    assert isinstance(values[b"token"], bytes)
    assert 4 <= len(values[b"token"]) <= 20


def token_for(node: DhtNode, asker: Contact, now: float = 1.0) -> bytes:
    token = returned(ask(node, GET_PEERS, get_peers_arguments(INFOHASH), asker, now))[b"token"]
    assert isinstance(token, bytes)
    return token


def peers_of(node: DhtNode, now: float = 1.0) -> object:
    return returned(ask(node, GET_PEERS, get_peers_arguments(INFOHASH), remote(77), now)).get(b"values", [])


def test_an_announced_peer_is_returned_with_the_address_it_announced_from():
    node = a_node()
    answered = ask(node, ANNOUNCE_PEER, announce_arguments(INFOHASH, token_for(node, ASKER), 1234))
    assert returned(answered) == {b"id": node.node_id}
    assert peers_of(node) == [pack("30.1.1.1", 1234)]


def test_an_implied_port_is_the_source_port_whatever_port_is_given():
    node = a_node()
    arguments = announce_arguments(INFOHASH, token_for(node, ASKER), None).replace(b"4:porti0e", b"4:porti1234e")
    assert b"i1234e" in arguments
    ask(node, ANNOUNCE_PEER, arguments)
    assert peers_of(node) == [ASKER.endpoint]


@pytest.mark.parametrize("case", ["none", "invented", "other address", "other infohash", "too old"])
def test_no_peer_is_stored_without_the_token_of_its_address(case: str):
    node = a_node()
    token = token_for(node, remote(3) if case == "other address" else ASKER)
    if case == "invented":
        token = bytes(len(token))
    infohash = b"o" * 20 if case == "other infohash" else INFOHASH
    arguments = announce_arguments(infohash, token, 1234)
    if case == "none":
        arguments = arguments[: arguments.index(b"5:token")]
    now = 11 * MINUTE if case == "too old" else 1.0
    answered = ask(node, ANNOUNCE_PEER, arguments, now=now)
    errors = answered[b"e"]
    assert isinstance(errors, list)
    assert errors[0] == 203
    assert peers_of(node, now) == []


def test_a_token_is_accepted_from_another_port_of_the_address_for_5_minutes():
    node = a_node()
    token = token_for(node, ASKER)
    other_port = Contact(ASKER.id, pack("30.1.1.1", 9))
    answered = ask(node, ANNOUNCE_PEER, announce_arguments(INFOHASH, token, 1234), other_port, 5.9 * MINUTE - 60.0)
    assert answered[b"y"] == b"r"


@pytest.mark.parametrize(
    ("method", "arguments", "code"),
    [
        (FIND_NODE, b"", 203),
        (GET_PEERS, b"9:info_hash3:abc", 203),
        (SAMPLE_INFOHASHES, b"", 203),
        (b"announce_peers", announce_arguments(INFOHASH, b"t", 1), 204),
        (b"vote", b"", 204),
    ],
)
def test_a_query_that_cannot_be_fulfilled_gets_an_error(method: bytes, arguments: bytes, code: int):
    answered = ask(a_node(), method, arguments)
    errors = answered[b"e"]
    assert isinstance(errors, list)
    assert errors[0] == code
    assert isinstance(errors[1], bytes)
    assert (answered[b"y"], answered[b"t"]) == (b"e", b"aa")


def test_a_query_is_not_repeated():
    node = a_node()
    node.ping(remote(1).endpoint, 1.0)
    assert len(queries(node)) == 1
    asked = run_until(node, 60.0, answering=[])
    assert [query.method for _, query, to in asked if to == remote(1).endpoint] == []


def test_an_answer_counts_only_from_the_address_that_was_queried():
    node = a_node()
    node.ping(remote(1).endpoint, 1.0)
    ((ping, _),) = queries(node)
    answer(node, ping, Contact(remote(1).id, remote(2).endpoint), 1.1)
    assert len(node.table) == 0


def test_a_contact_that_answers_with_another_id_is_dropped():
    node, (contact, *_) = a_node_with(1)
    node.handle_timer(16 * MINUTE)
    (query, *_) = (query for query, to in queries(node) if to == contact.endpoint)
    answer(node, query, Contact(bytes(20), contact.endpoint), 16 * MINUTE + 0.1)
    assert list(node.table.contacts()) == []
