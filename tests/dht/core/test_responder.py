from __future__ import annotations

import random

import pytest

from lycosa.dht.core.endpoints import IPV4, IPV6, AllowedNetworks, Contact, pack, split_contacts, text
from lycosa.dht.core.events import PeerAnnounced, PeersWanted
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    FIND_NODE,
    GET_PEERS,
    PING,
    SAMPLE_INFOHASHES,
    SENT_BYTES_MAX,
    WANT_NODES,
    WANT_NODES6,
    ErrorMessage,
    Query,
    Reply,
    decode_message,
)
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.peer_store import PeerStore
from lycosa.dht.core.responder import Neighbourhood, Responder
from lycosa.dht.core.routing.table import RoutingTable
from lycosa.dht.core.scrape_filter import ScrapeFilter
from lycosa.dht.core.tokens import TokenIssuer

INFOHASH = b"h" * 20
ASKER = pack("20.0.0.9", 4000)
ASKER6 = pack("2400::9", 4000)
BOTH = WANT_NODES | WANT_NODES6


def a_table(own_id: bytes, endpoints: list[bytes]) -> RoutingTable:
    table = RoutingTable(own_id, 0.0)
    chance = random.Random(5)
    for each in endpoints:
        table.responded(Contact(chance.randbytes(20), each), 0.0)
    return table


class Answering:
    """A responder for each address family; both share their tables, which have enough contacts for full answers."""

    def __init__(self, **config: object) -> None:
        self.shared = Neighbourhood()
        self.shared.tables = {
            IPV4: a_table(b"4" * 20, [pack(f"20.0.{number}.1", 1) for number in range(40)]),
            IPV6: a_table(b"6" * 20, [pack(f"2400:0:{number:x}::1", 1) for number in range(40)]),
        }
        self.announced: list[PeerAnnounced] = []
        self.wanted: list[PeersWanted] = []
        self.responders = {
            family: Responder(
                self.shared.tables[family],
                self.shared,
                TokenIssuer(b"s" * 32),
                random.Random(1).randbytes,
                family=family,
                config=NodeConfig(sample_interval_s=600, **config),
                on_infohash=self._report,
            )
            for family in (IPV4, IPV6)
        }

    def _report(self, event: PeerAnnounced | PeersWanted) -> None:
        (self.announced if isinstance(event, PeerAnnounced) else self.wanted).append(event)

    def ask(self, source: bytes = ASKER, now: float = 1.0, **query: object) -> Reply | ErrorMessage:
        family = IPV4 if len(source) == 6 else IPV6
        answer = self.responders[family].answer(Query(b"2:aa", id=b"i" * 20, **query), source, now)
        assert len(answer) <= SENT_BYTES_MAX
        message = decode_message(answer)
        assert not isinstance(message, Query)
        return message

    def fill(self, count: int, source: bytes = ASKER) -> None:
        family = IPV4 if len(source) == 6 else IPV6
        for number in range(count):
            ip = f"30.0.{number // 256}.{number % 256}" if family == IPV4 else f"2400:1:2:{number:x}::1"
            self.shared.peers[family].announce(INFOHASH, pack(ip, 9), 0.0, seed=number % 3 == 0)


def test_an_answer_echoes_transaction_id_and_address():
    reply = Answering().ask(method=PING)
    assert isinstance(reply, Reply)
    assert (reply.transaction, reply.id, reply.own_endpoint) == (b"aa", b"4" * 20, ASKER)


@pytest.mark.parametrize(
    ("source", "want", "nodes", "nodes6"),
    [
        (ASKER, 0, 8, 0),
        (ASKER6, 0, 0, 8),
        (ASKER, WANT_NODES6, 0, 8),
        (ASKER6, WANT_NODES, 8, 0),
        (ASKER, BOTH, 8, 8),
    ],
)
@pytest.mark.parametrize("method", [FIND_NODE, GET_PEERS, SAMPLE_INFOHASHES])
def test_nodes_are_of_the_family_of_the_query_or_as_want_says(
    method: bytes, source: bytes, want: int, nodes: int, nodes6: int
):
    reply = Answering().ask(source, method=method, target=INFOHASH, want=want)
    assert (len(split_contacts(reply.nodes, IPV4)), len(split_contacts(reply.nodes6, IPV6))) == (nodes, nodes6)


def test_a_requested_infohash_is_reported_without_the_requester():
    answering = Answering()
    answering.ask(method=GET_PEERS, target=INFOHASH)
    answering.ask(method=FIND_NODE, target=INFOHASH)
    assert answering.wanted == [PeersWanted(INFOHASH)]


def test_without_a_table_of_a_wanted_family_no_nodes_of_that_family_are_returned():
    answering = Answering()
    del answering.shared.tables[IPV6]
    assert answering.ask(method=FIND_NODE, target=INFOHASH, want=BOTH).nodes6 == b""


@pytest.mark.parametrize("source", [ASKER, ASKER6], ids=["IPv4", "IPv6"])
def test_get_peers_returns_peers_and_nodes_and_a_token(source: bytes):
    answering = Answering()
    answering.fill(3, source)
    reply = answering.ask(source, method=GET_PEERS, target=INFOHASH)
    assert len(reply.values) == 3
    assert {len(each) for each in reply.values} == {len(source)}
    assert reply.nodes or reply.nodes6
    assert reply.token


@pytest.mark.parametrize("source", [ASKER, ASKER6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("want", [0, BOTH])
@pytest.mark.parametrize("scrape", [False, True])
def test_many_peers_fill_the_datagram_without_exceeding_its_maximum_size(source: bytes, want: int, *, scrape: bool):
    answering = Answering()
    answering.fill(300, source)
    query = Query(b"64:" + b"t" * 64, GET_PEERS, b"i" * 20, INFOHASH, want, scrape=scrape)
    answer = answering.responders[IPV4 if source == ASKER else IPV6].answer(query, source, 1.0)
    assert 700 < len(answer) <= SENT_BYTES_MAX


def test_a_scrape_returns_filters_of_seeds_and_of_others():
    answering = Answering()
    answering.fill(9)
    reply = answering.ask(method=GET_PEERS, target=INFOHASH, scrape=True)
    assert round(ScrapeFilter(reply.seed_filter).estimate()) == 3
    assert round(ScrapeFilter(reply.peer_filter).estimate()) == 6
    assert answering.ask(method=GET_PEERS, target=INFOHASH).seed_filter == b""


def test_a_scrape_without_peers_has_no_filters():
    assert Answering().ask(method=GET_PEERS, target=INFOHASH, scrape=True).peer_filter == b""


def test_noseed_leaves_seeds_out():
    answering = Answering()
    answering.fill(9)
    assert len(answering.ask(method=GET_PEERS, target=INFOHASH, noseed=True).values) == 6


def test_no_token_is_returned_for_an_infohash_that_has_the_maximum_of_peers():
    answering = Answering()
    answering.shared.peers[IPV4] = PeerStore(swarm_max=1)
    answering.responders[IPV4]._peers = answering.shared.peers[IPV4]
    answering.fill(1)
    assert answering.ask(method=GET_PEERS, target=INFOHASH).token is None
    assert answering.ask(method=GET_PEERS, target=b"o" * 20).token


def test_an_announce_is_reported_and_stored_for_its_own_address_family_only():
    answering = Answering()
    token = answering.ask(method=GET_PEERS, target=INFOHASH).token
    answering.ask(method=ANNOUNCE_PEER, target=INFOHASH, token=token, port=77, seed=True)
    announced = pack("20.0.0.9", 77)
    assert answering.announced == [PeerAnnounced(INFOHASH, announced, seed=True)]
    assert list(answering.ask(method=GET_PEERS, target=INFOHASH).values) == [announced]
    assert answering.ask(ASKER6, method=GET_PEERS, target=INFOHASH).values == []


def test_an_announce_with_a_wrong_token_is_an_error():
    answering = Answering()
    error = answering.ask(method=ANNOUNCE_PEER, target=INFOHASH, token=b"wrong", port=77)
    assert isinstance(error, ErrorMessage)
    assert (error.code, error.message) == (203, b"invalid token")
    assert answering.announced == []


PRIVATE = pack("10.0.0.1", 25), pack("127.0.0.1", 25), pack("192.168.1.1", 25), pack("fe80::1", 25), pack("::1", 25)


@pytest.mark.parametrize("source", PRIVATE, ids=text)
def test_a_private_address_is_answered_without_a_token_and_not_stored(source: bytes):
    answering = Answering()
    reply = answering.ask(source, method=GET_PEERS, target=INFOHASH)
    assert reply.nodes or reply.nodes6
    assert reply.token is None
    valid = TokenIssuer(b"s" * 32).issue(source[:-2], INFOHASH, 1.0)
    error = answering.ask(source, method=ANNOUNCE_PEER, target=INFOHASH, token=valid, port=77)
    assert isinstance(error, ErrorMessage)
    assert (error.code, error.message) == (203, b"not a public address")
    assert answering.announced == []
    assert [len(peers) for peers in answering.shared.peers.values()] == [0, 0]


def test_a_private_address_that_is_allowed_is_stored():
    answering = Answering(allowed_networks=AllowedNetworks(["10.0.0.0/8"]))
    token = answering.ask(PRIVATE[0], method=GET_PEERS, target=INFOHASH).token
    answering.ask(PRIVATE[0], method=ANNOUNCE_PEER, target=INFOHASH, token=token, port=77)
    assert list(answering.ask(method=GET_PEERS, target=INFOHASH).values) == [pack("10.0.0.1", 77)]


@pytest.mark.parametrize("want", [0, BOTH])
def test_samples_come_with_the_number_of_infohashes_and_the_interval(want: int):
    answering = Answering()
    for number in range(100):
        answering.shared.peers[IPV4].announce(bytes([number]) * 20, ASKER, 0.0, seed=False)
    reply = answering.ask(method=SAMPLE_INFOHASHES, target=INFOHASH, want=want)
    assert len(reply.samples) >= 16 * 20
    assert (reply.num, reply.interval_s) == (100, 600)


def test_an_empty_sample_is_sent_too():
    """It shows that the node supports the query (BEP 51)."""
    assert Answering().ask(method=SAMPLE_INFOHASHES, target=INFOHASH).samples == b""
