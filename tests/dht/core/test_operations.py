"""Lookups and their follow-up queries, on a lossless network of a dozen nodes, or with answers written by hand."""

from __future__ import annotations

import random

import pytest

from lycosa.dht.core.endpoints import IPV4, AllowedNetworks, Contact, pack, pack_contacts, with_port
from lycosa.dht.core.events import (
    AnnounceFinished,
    Event,
    InfohashesSampled,
    LookupFinished,
    LookupProgress,
    PeersNamed,
    QueryFinished,
)
from lycosa.dht.core.krpc import ANNOUNCE_PEER, GET_PEERS, SAMPLE_INFOHASHES, Reply
from lycosa.dht.core.operations import OPERATIONS_MAX, NodeBusy, Operations
from lycosa.dht.core.peer_store import PeerStore
from lycosa.dht.core.routing.answers import AnswerReader
from lycosa.dht.core.routing.table import RoutingTable
from lycosa.dht.core.scrape_filter import ScrapeFilter
from lycosa.dht.core.transactions import OutgoingQuery, SilentEndpoints

INFOHASH = bytes(20)


def node(number: int) -> Contact:
    return Contact(bytes([1, number]) + bytes(18), pack(f"20.0.{number}.1", 6881))


def peer(number: int) -> bytes:
    return pack(f"30.0.0.{number}", 1000 + number)


class Play:
    """Operations whose queries are answered by hand."""

    def __init__(self, contacts: int = 3) -> None:
        self.table = RoutingTable(b"\xff" * 20, 0.0)
        for number in range(1, contacts + 1):
            self.table.responded(node(number), 0.0)
        self.silent = SilentEndpoints()
        self.sent: list[OutgoingQuery] = []
        self.events: list[Event] = []
        self.peers = PeerStore()
        self.operations = Operations(
            self.table,
            self.peers,
            AnswerReader(IPV4, AllowedNetworks(), self.silent),
            lambda query, now: self.sent.append(query),
            self.events.append,
            is_secure=lambda _: True,
            is_local=lambda _: False,
        )

    def answer(self, now: float = 1.0, **values: object) -> list[OutgoingQuery]:
        """Answer the queries in flight. Return these queries."""
        sent, self.sent = self.sent, []
        for query in sent:
            reply = Reply(b"t", query.expected_id or b"r" * 20, **values)
            query.operation.answered(query, reply, now)
        return sent

    def fail(self) -> None:
        sent, self.sent = self.sent, []
        for query in sent:
            query.operation.failed(query, "no answer", 10.0)


def test_each_peer_is_reported_once_when_it_arrives():
    play = Play()
    number = play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    play.answer(values=[peer(1), peer(2)])
    assert play.events == [
        LookupProgress(number, (peer(1), peer(2))),
        LookupFinished(number, INFOHASH, (node(1), node(2), node(3)), 2),
    ]


def test_a_lookup_also_finds_peers_that_were_announced_to_this_node():
    play = Play()
    play.peers.announce(INFOHASH, peer(9), 0.0, seed=False)
    number = play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    assert play.events == [LookupProgress(number, (peer(9),))]


def test_a_lookup_leaves_out_peers_at_private_addresses_that_were_announced_to_this_node():
    play = Play()
    play.peers.announce(INFOHASH, pack("10.0.0.1", 25), 0.0, seed=False)
    play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    assert play.events == []


def test_addresses_that_must_not_be_contacted_are_left_out():
    play = Play()
    private = [pack("10.0.0.1", 25), pack("127.0.0.1", 25), pack("224.0.0.1", 25), pack("30.0.0.1", 0)]
    play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    nodes = pack_contacts(Contact(b"\1" + bytes(19), each) for each in private)
    play.answer(values=private, nodes=nodes)
    assert play.sent == []
    assert [event.peers for event in play.events if isinstance(event, LookupFinished)] == [0]


def test_peers_of_the_other_family_are_left_out():
    play = Play()
    number = play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    play.answer(values=[peer(1), pack("2400::1", 1)])
    assert play.events[0] == LookupProgress(number, (peer(1),))


def test_silent_endpoints_are_not_queried():
    play = Play()
    for _ in range(3):
        play.silent.failed(node(9).endpoint, 0.0)
    play.operations.find_node(INFOHASH, 0.0)
    play.answer(nodes=pack_contacts([node(8), node(9)]))
    assert [query.endpoint for query in play.sent] == [node(8).endpoint]


def test_a_lookup_starts_with_contacts_that_are_known_to_be_near():
    play = Play(0)
    play.operations.get_peers(INFOHASH, 0.0, scrape=False, start=[node(7), node(8)])
    assert [query.endpoint for query in play.sent] == [node(7).endpoint, node(8).endpoint]


def test_get_peers_from_one_node_reports_its_peers_and_its_contacts_near_the_infohash():
    play = Play()
    number = play.operations.get_peers(INFOHASH, 0.0, only=node(9))
    [query] = play.answer(values=[peer(1)], nodes=pack_contacts([node(8)]))
    assert (query.endpoint, query.method) == (node(9).endpoint, GET_PEERS)
    assert play.events == [PeersNamed(number, node(9), (peer(1),), (node(8),))]


def test_a_late_answer_fails_a_query_for_peers_but_not_one_for_a_sample():
    play = Play()
    asked = play.operations.get_peers(INFOHASH, 0.0, only=node(9))
    play.operations.sample_infohashes(node(8), INFOHASH, 0.0)
    for query in play.sent:
        query.operation.stalled(query, 1.0)
    assert play.events == [QueryFinished(asked, node(9).endpoint, None, None, "the answer is late")]
    play.answer(values=[peer(1)], samples=INFOHASH)
    assert [type(event) for event in play.events] == [QueryFinished, InfohashesSampled]


def test_an_announce_goes_to_each_node_with_its_own_token():
    play = Play()
    number = play.operations.announce(INFOHASH, None, 6881, 0.0, seed=True)
    play.sent, lookup = [], play.sent
    for query in lookup:
        query.operation.answered(query, Reply(b"t", query.expected_id, token=query.expected_id[:2]), 1.0)
    assert {query.method for query in play.sent} == {ANNOUNCE_PEER}
    for query in play.sent:
        assert query.arguments.startswith(b"12:implied_porti1e")
        assert b"4:porti6881e4:seedi1e5:token2:" + query.expected_id[:2] in query.arguments
    play.answer()
    assert play.events[-1] == AnnounceFinished(number, INFOHASH, 3, 3)


def test_an_announce_counts_the_confirmations():
    play = Play()
    number = play.operations.announce(INFOHASH, 99, 6881, 0.0, seed=False)
    play.answer(token=b"tok")
    assert all(b"implied_port" not in query.arguments and b"4:porti99e" in query.arguments for query in play.sent)
    play.fail()
    assert play.events[-1] == AnnounceFinished(number, INFOHASH, 3, 0)


def test_without_tokens_nothing_is_announced():
    play = Play()
    number = play.operations.announce(INFOHASH, 99, 6881, 0.0, seed=False)
    play.answer()
    assert play.events == [AnnounceFinished(number, INFOHASH, 0, 0)]


def filters(seeds: list[int], leechers: list[int]) -> dict[str, bytes]:
    made = ScrapeFilter(), ScrapeFilter()
    for each, numbers in zip(made, (seeds, leechers), strict=True):
        for number in numbers:
            each.insert(peer(number)[:4])
    return {"seed_filter": bytes(made[0]), "peer_filter": bytes(made[1])}


def test_a_scrape_unites_the_filters_of_the_closest_nodes():
    play = Play()
    play.operations.get_peers(INFOHASH, 0.0, scrape=True)
    play.answer(values=[peer(1)])
    assert {query.method for query in play.sent} == {GET_PEERS}
    assert all(b"6:scrapei1e" in query.arguments for query in play.sent)
    for query, seeds in zip(play.sent, ([1, 2], [2, 3], []), strict=True):
        query.operation.answered(query, Reply(b"t", query.expected_id, **filters(seeds, [4])), 2.0)
    finished = play.events[-1]
    assert isinstance(finished, LookupFinished)
    assert (round(finished.seeds), round(finished.leechers)) == (3, 1)


def test_peers_of_a_node_without_filters_are_leechers_unless_they_seed_elsewhere():
    play = Play(contacts=2)
    play.operations.get_peers(INFOHASH, 0.0, scrape=True)
    play.answer()
    first, second = play.sent
    first.operation.answered(first, Reply(b"t", first.expected_id, **filters([1], [])), 2.0)
    second.operation.answered(second, Reply(b"t", second.expected_id, values=[peer(1), peer(2)]), 2.0)
    finished = play.events[-1]
    assert (round(finished.seeds), round(finished.leechers)) == (1, 1)


def test_without_a_scrape_there_is_no_estimate():
    play = Play()
    play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    play.answer()
    assert (play.events[-1].seeds, play.events[-1].leechers) == (None, None)


def test_no_sample_is_requested_before_the_interval_has_passed():
    play = Play()
    play.operations.sample_infohashes(node(1), INFOHASH, 0.0)
    (query,) = play.answer(now=1.0, samples=b"a" * 20 + b"b" * 20, num=7, interval_s=600)
    assert query.method == SAMPLE_INFOHASHES
    assert play.events == [InfohashesSampled(1, node(1), (b"a" * 20, b"b" * 20), 7, 600, ())]
    early = play.operations.sample_infohashes(node(1), INFOHASH, 300.0)
    assert play.sent == []
    assert play.events[-1] == QueryFinished(
        early, node(1).endpoint, None, None, "too early: the interval of the node ends in 301 s"
    )
    play.operations.sample_infohashes(node(1), INFOHASH, 602.0)
    assert len(play.sent) == 1


def test_a_node_without_bep_51_is_recognised():
    play = Play()
    play.operations.sample_infohashes(node(1), INFOHASH, 0.0)
    play.answer(nodes=pack_contacts([node(2)]))
    assert play.events == [InfohashesSampled(1, node(1), None, 0, 0, (node(2),))]


def test_a_cancelled_operation_reports_nothing():
    play = Play()
    for number in (play.operations.get_peers(INFOHASH, 0.0, scrape=False), play.operations.ping(peer(1), 0.0)):
        play.operations.cancel(number)
    play.answer(values=[peer(1)])
    assert play.events == []
    assert play.sent == []
    assert len(play.operations) == 0


def test_a_lookup_queries_bootstrap_nodes_while_the_table_is_small():
    play = Play(contacts=0)
    play.operations.bootstrap = (peer(1),)
    play.operations.get_peers(INFOHASH, 0.0, scrape=False)
    assert [query.endpoint for query in play.sent] == [peer(1)]
    play.answer(nodes=pack_contacts([node(5)]))
    assert [query.endpoint for query in play.sent] == [node(5).endpoint]
    play.answer(values=[peer(2)])
    assert play.events[-1].peers == 1


def test_a_lookup_without_any_node_ends_at_once():
    play = Play(contacts=0)
    number = play.operations.find_node(INFOHASH, 0.0)
    assert play.events == [LookupFinished(number, INFOHASH, (), 0)]


def test_a_lookup_without_answers_ends():
    play = Play()
    number = play.operations.find_node(INFOHASH, 0.0)
    play.fail()
    assert play.events == [LookupFinished(number, INFOHASH, (), 0)]


def test_too_many_operations_are_refused():
    play = Play()
    for _ in range(OPERATIONS_MAX):
        play.operations.ping(peer(1), 0.0)
    with pytest.raises(NodeBusy, match="are running"):
        play.operations.ping(peer(1), 0.0)


def test_every_operation_ends_with_one_event_whatever_the_answers_are():
    """Answers, late answers and failures in any order leave nothing running."""
    for seed in range(30):
        chance = random.Random(seed)
        play = Play(contacts=8)
        play.operations.get_peers(INFOHASH, 0.0, scrape=True)
        play.operations.announce(INFOHASH, 1, 1, 0.0, seed=False)
        play.operations.ping(peer(1), 0.0)
        while play.sent:
            query = play.sent.pop(chance.randrange(len(play.sent)))
            if chance.random() < 0.3:
                query.operation.stalled(query, 1.0)
            if chance.random() < 0.3:
                query.operation.failed(query, "no answer", 2.0)
            else:
                nodes = pack_contacts(node(chance.randrange(255)) for _ in range(8))
                values = [with_port(peer(chance.randrange(255)), 1)]
                query.operation.answered(
                    query, Reply(b"t", query.expected_id or b"r" * 20, nodes=nodes, values=values, token=b"k"), 2.0
                )
        ended = [event for event in play.events if not isinstance(event, LookupProgress)]
        assert sorted(event.operation_id for event in ended) == [1, 2, 3], f"seed {seed}"
        assert len(play.operations) == 0
