"""The operations of a node: lookups, announces, scrapes, samples, pings. Each ends with one event.

After a get_peers lookup, follow-up queries may go to the closest nodes: announce_peer with their tokens, or a second
get_peers with `scrape` (BEP 33). The lookup itself does not set `scrape`, because many nodes then return no peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypedDict

from lycosa.core.errors import LycosaError
from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import (
    Contact,
    ip_of,
)
from lycosa.dht.core.events import (
    AnnounceFinished,
    InfohashesSampled,
    LookupFinished,
    LookupProgress,
    OperationEvent,
    PeersNamed,
    QueryFinished,
)
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    FIND_NODE,
    GET_PEERS,
    PING,
    SAMPLE_INFOHASHES,
    WANT_NODES,
    WANT_NODES6,
    Reply,
    announce_arguments,
    find_node_arguments,
    get_peers_arguments,
)
from lycosa.dht.core.peer_store import PeerStore
from lycosa.dht.core.routing.answers import AnswerReader
from lycosa.dht.core.routing.lookup import PEERS_MAX, Lookup, NodeWithToken
from lycosa.dht.core.routing.table import RoutingTable
from lycosa.dht.core.scrape_filter import ScrapeFilter
from lycosa.dht.core.transactions import OutgoingQuery

FOLLOW_UPS_MAX = 3
"""Maximum number of follow-up queries of one operation in flight (BEP 33: 3)."""
OPERATIONS_MAX = 1000
"""Enough for a hundred lookups per second, each taking ten seconds."""
SAMPLED_MAX = 20_000
"""Maximum number of nodes whose interval (BEP 51) is remembered."""
START_CONTACTS = 16
"""K contacts, and as many again to replace contacts that are gone."""

Send = Callable[[OutgoingQuery, float], None]
Emit = Callable[[OperationEvent], None]


class SingleQuery:
    """An operation of one query. With `fail_when_stalled`, it fails as soon as the answer is late."""

    def __init__(
        self,
        operation_id: int,
        emit: Emit,
        on_answer: Callable[[OutgoingQuery, Reply, float], OperationEvent],
        *,
        fail_when_stalled: bool = False,
    ) -> None:
        self.operation_id = operation_id
        self.is_over = False
        self._emit = emit
        self._on_answer = on_answer
        self._fail_when_stalled = fail_when_stalled

    def answered(self, query: OutgoingQuery, reply: Reply, now: float) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._emit(self._on_answer(query, reply, now))

    def stalled(self, query: OutgoingQuery, now: float) -> None:
        if self._fail_when_stalled:
            self.failed(query, "the answer is late", now)

    def failed(self, query: OutgoingQuery, reason: str, now: float) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._emit(QueryFinished(self.operation_id, query.endpoint, None, None, reason))


class LookupOperation:
    """A find_node lookup (get_peers in some subclasses) and its follow-up queries."""

    method = FIND_NODE

    def __init__(self, operation_id: int, lookup: Lookup, reading: AnswerReader, send: Send, emit: Emit) -> None:
        self.operation_id = operation_id
        self.lookup = lookup
        self.is_over = False
        self._reading = reading
        self._send = send
        self._emit = emit
        self._arguments = self._encoded_arguments()
        self._sources: dict[bytes, bool] = {}  # endpoint -> whether its answer is late
        self._following: list[OutgoingQuery] | None = None
        self._following_in_flight = 0

    def begin(self, sources: Iterable[bytes], now: float) -> None:
        """`sources` are endpoints of nodes whose id is unknown."""
        for endpoint in sources:
            self._sources[endpoint] = False
            self._send(OutgoingQuery(self.method, self._arguments, endpoint, None, self), now)
        self._pump(now)

    def answered(self, query: OutgoingQuery, reply: Reply, now: float) -> None:
        if self.is_over:
            return
        contact = query.contact()
        if query.arguments is not self._arguments:
            self._following_in_flight -= 1
            self._follow_up_answered(reply)
        elif contact is None:
            self._sources.pop(query.endpoint, None)
            self.lookup.add(self._reading.contacts(reply, now))
        else:
            self.lookup.answered(contact, self._reading.contacts(reply, now), reply.token or b"")
        self._found(self._reading.peers(reply))
        self._pump(now)

    def stalled(self, query: OutgoingQuery, now: float) -> None:
        contact = query.contact()
        if self.is_over or query.arguments is not self._arguments:
            return
        if contact is None:
            self._sources[query.endpoint] = True
        else:
            self.lookup.stalled(contact)
        self._pump(now)

    def failed(self, query: OutgoingQuery, reason: str, now: float) -> None:
        if self.is_over:
            return
        contact = query.contact()
        if query.arguments is not self._arguments:
            self._following_in_flight -= 1
        elif contact is None:
            self._sources.pop(query.endpoint, None)
        else:
            self.lookup.failed(contact)
        self._pump(now)

    def _pump(self, now: float) -> None:
        if self._following is None:
            for contact in self.lookup.to_ask():
                self._send(OutgoingQuery(self.method, self._arguments, contact.endpoint, contact.id, self), now)
            if self._waits_for_sources() or not self.lookup.is_finished():
                return
            self._following = self._follow_ups()
        while self._following and self._following_in_flight < FOLLOW_UPS_MAX:
            self._following_in_flight += 1
            self._send(self._following.pop(0), now)
        if not self._following_in_flight:
            self.is_over = True
            self._emit(self._finished())

    def _waits_for_sources(self) -> bool:
        """Once a node has answered, late sources are not waited for."""
        return bool(self._sources) and not (all(self._sources.values()) and self.lookup.has_answers())

    def _found(self, peers: Iterable[bytes]) -> None:
        new = self.lookup.add_peers(peers)
        if new:
            self._emit(LookupProgress(self.operation_id, tuple(new)))

    def _encoded_arguments(self) -> bytes:
        return find_node_arguments(self.lookup.target)

    def _follow_ups(self) -> list[OutgoingQuery]:
        return []

    def _follow_up_answered(self, reply: Reply) -> None:
        pass

    def _finished(self) -> OperationEvent:
        closest = tuple(each.contact for each in self.lookup.closest())
        return LookupFinished(self.operation_id, self.lookup.target, closest, len(self.lookup.peers))


class JoinOperation(LookupOperation):
    """A search for our own id, which also requests contacts for our node of the other family (BEP 32)."""

    def __init__(
        self, lookup: Lookup, reading: AnswerReader, send: Send, emit: Emit, offer: Callable[[Contact, float], None]
    ) -> None:
        super().__init__(0, lookup, reading, send, emit)
        self._offer = offer

    def answered(self, query: OutgoingQuery, reply: Reply, now: float) -> None:
        for contact in self._reading.contacts_of_the_other_family(reply):
            self._offer(contact, now)
        super().answered(query, reply, now)

    def _encoded_arguments(self) -> bytes:
        return find_node_arguments(self.lookup.target, WANT_NODES | WANT_NODES6)


class GetPeersOperation(LookupOperation):
    """A search for peers, optionally with a scrape of the closest nodes."""

    method = GET_PEERS

    def __init__(
        self, operation_id: int, lookup: Lookup, reading: AnswerReader, send: Send, emit: Emit, *, scrape: bool = False
    ) -> None:
        super().__init__(operation_id, lookup, reading, send, emit)
        self._scrape = scrape
        self._scraped = 0
        self._seeds = ScrapeFilter()
        self._leechers = ScrapeFilter()
        self._without_filters: set[bytes] = set()

    def add_own(self, peers: Iterable[bytes]) -> None:
        self._found(self._reading.usable(peers))

    def _encoded_arguments(self) -> bytes:
        return get_peers_arguments(self.lookup.target)

    def _follow_ups(self) -> list[OutgoingQuery]:
        arguments = get_peers_arguments(self.lookup.target, scrape=True)
        closest = self.lookup.closest() if self._scrape else []
        return [OutgoingQuery(GET_PEERS, arguments, node.endpoint, node.id, self) for node, _ in closest]

    def _follow_up_answered(self, reply: Reply) -> None:
        self._scraped += 1
        if reply.seed_filter or reply.peer_filter:
            self._seeds.unite(reply.seed_filter)
            self._leechers.unite(reply.peer_filter)
        else:
            # A node without BEP 33 sends no filters: its peers count as leechers unless another node has them as seeds.
            self._without_filters |= {ip_of(peer) for peer in self._reading.peers(reply)}

    def _finished(self) -> OperationEvent:
        closest = tuple(each.contact for each in self.lookup.closest())
        found = len(self.lookup.peers)
        if not self._scraped:
            return LookupFinished(self.operation_id, self.lookup.target, closest, found)
        for ip in self._without_filters:
            if ip not in self._seeds:
                self._leechers.insert(ip)
        seeds, leechers = self._seeds.estimate(), self._leechers.estimate()
        return LookupFinished(self.operation_id, self.lookup.target, closest, found, seeds, leechers)


class AnnounceOperation(LookupOperation):
    """A search for peers, then announces to the closest nodes that gave a token."""

    method = GET_PEERS

    def __init__(
        self,
        operation_id: int,
        lookup: Lookup,
        reading: AnswerReader,
        send: Send,
        emit: Emit,
        *,
        port: int | None,
        local_port: int,
        seed: bool,
    ) -> None:
        super().__init__(operation_id, lookup, reading, send, emit)
        self._port = port
        self._local_port = local_port
        self._seed = seed
        self._asked = 0
        self._confirmed = 0

    def _encoded_arguments(self) -> bytes:
        return get_peers_arguments(self.lookup.target)

    def _follow_ups(self) -> list[OutgoingQuery]:
        nodes = self.lookup.closest_with_token()
        self._asked = len(nodes)
        return [self._announce(each) for each in nodes]

    def _announce(self, node: NodeWithToken) -> OutgoingQuery:
        arguments = announce_arguments(
            self.lookup.target, node.token, self._port, seed=self._seed, local_port=self._local_port
        )
        return OutgoingQuery(ANNOUNCE_PEER, arguments, node.contact.endpoint, node.contact.id, self)

    def _follow_up_answered(self, reply: Reply) -> None:
        self._confirmed += 1

    def _finished(self) -> OperationEvent:
        return AnnounceFinished(self.operation_id, self.lookup.target, self._asked, self._confirmed)


def ping_finished(operation_id: int, query: OutgoingQuery, reply: Reply, now: float) -> OperationEvent:
    """Return the event of an answered ping."""
    return QueryFinished(operation_id, query.endpoint, reply.id, now - query.sent_at)


def sample_finished(
    operation_id: int, reading: AnswerReader, query: OutgoingQuery, reply: Reply, now: float
) -> OperationEvent:
    """Return the event of an answered sample_infohashes. A node without BEP 51 answers with contacts only."""
    contact = Contact(reply.id, query.endpoint)
    closer = tuple(reading.contacts(reply, now))
    samples = reply.samples
    if samples is None:
        return InfohashesSampled(operation_id, contact, None, 0, 0, closer)
    infohashes = tuple(samples[at : at + ID_BYTES] for at in range(0, len(samples), ID_BYTES))
    return InfohashesSampled(operation_id, contact, infohashes, reply.num, reply.interval_s, closer)


def peers_named(
    operation_id: int, reading: AnswerReader, query: OutgoingQuery, reply: Reply, now: float
) -> OperationEvent:
    """Return the event of an answered get_peers query that is not part of a lookup."""
    peers, closer = tuple(reading.peers(reply)), tuple(reading.contacts(reply, now))
    return PeersNamed(operation_id, Contact(reply.id, query.endpoint), peers, closer)


class PeersOptions(TypedDict, total=False):
    """The options of `get_peers`."""

    scrape: bool
    """Also estimate the numbers of seeds and leechers (BEP 33)."""
    start: Iterable[Contact]
    """Contacts that are known to be near the infohash."""
    only: Contact
    """Query only this node. The event is PeersNamed, or QueryFinished if the query fails or its answer is late."""


class NodeBusy(LycosaError):
    """Too many operations are running on this DHT node."""


def _ignore(_: OperationEvent) -> None:
    pass


class Operations:
    """Starts operations, and keeps the running ones."""

    def __init__(
        self,
        table: RoutingTable,
        peers: PeerStore,
        reading: AnswerReader,
        send: Send,
        emit: Emit,
        *,
        is_secure: Callable[[Contact], bool],
        is_local: Callable[[bytes], bool],
    ) -> None:
        self._table = table
        self._peers = peers
        self._reading = reading
        self._send = send
        self._report = emit
        self._is_secure = is_secure
        self._is_local = is_local
        self.bootstrap: tuple[bytes, ...] = ()
        self._running: dict[int, LookupOperation | SingleQuery] = {}
        self._started = 0
        self._sample_again_at: RecentDict[bytes, float] = RecentDict(SAMPLED_MAX)

    def __len__(self) -> int:
        return len(self._running)

    def search(self, target: bytes, now: float) -> None:
        LookupOperation(0, self._lookup(target, now), self._reading, self._send, _ignore).begin((), now)

    def join(self, offer: Callable[[Contact, float], None] | None, on_finished: Callable[[], None], now: float) -> None:
        """Search for our own id. `offer` receives contacts of the other address family."""
        lookup = self._lookup(self._table.own_id, now)
        sources = self._sources(lookup, now)
        if offer is None:
            LookupOperation(0, lookup, self._reading, self._send, lambda _: on_finished()).begin(sources, now)
        else:
            JoinOperation(lookup, self._reading, self._send, lambda _: on_finished(), offer).begin(sources, now)

    def find_node(self, target: bytes, now: float) -> int:
        lookup = self._lookup(target, now)
        return self._begin(LookupOperation(self._next_id(), lookup, self._reading, self._send, self._emit), now)

    def get_peers(
        self,
        infohash: bytes,
        now: float,
        *,
        scrape: bool = False,
        start: Iterable[Contact] = (),
        only: Contact | None = None,
    ) -> int:
        if only is not None:
            return self._ask_peers(only, infohash, now)
        lookup = self._lookup(infohash, now)
        lookup.add(start)
        operation = GetPeersOperation(self._next_id(), lookup, self._reading, self._send, self._emit, scrape=scrape)
        operation.add_own(self._peers.peers(infohash, PEERS_MAX, 0, now))
        return self._begin(operation, now)

    def announce(self, infohash: bytes, port: int | None, local_port: int, now: float, *, seed: bool) -> int:
        lookup = self._lookup(infohash, now)
        operation = AnnounceOperation(
            self._next_id(),
            lookup,
            self._reading,
            self._send,
            self._emit,
            port=port,
            local_port=local_port,
            seed=seed,
        )
        return self._begin(operation, now)

    def ping(self, endpoint: bytes, now: float) -> int:
        operation_id = self._next_id()
        operation = SingleQuery(operation_id, self._emit, partial(ping_finished, operation_id))
        self._running[operation_id] = operation
        self._send(OutgoingQuery(PING, b"", endpoint, None, operation), now)
        return operation_id

    def sample_infohashes(self, contact: Contact, target: bytes, now: float) -> int:
        """Fails if the node's interval has not passed yet (BEP 51)."""
        operation_id = self._next_id()
        operation = SingleQuery(operation_id, self._emit, partial(self._sampled, operation_id))
        self._running[operation_id] = operation
        query = OutgoingQuery(SAMPLE_INFOHASHES, find_node_arguments(target), contact.endpoint, contact.id, operation)
        again_at = self._sample_again_at.get(contact.endpoint, now)
        if again_at > now:
            operation.failed(query, f"too early: the interval of the node ends in {again_at - now:.0f} s", now)
        else:
            self._send(query, now)
        return operation_id

    def cancel(self, operation_id: int) -> None:
        operation = self._running.pop(operation_id, None)
        if operation is not None:
            operation.is_over = True

    def _ask_peers(self, contact: Contact, infohash: bytes, now: float) -> int:
        operation_id = self._next_id()
        on_answer = partial(peers_named, operation_id, self._reading)
        operation = SingleQuery(operation_id, self._emit, on_answer, fail_when_stalled=True)
        self._running[operation_id] = operation
        arguments = get_peers_arguments(infohash)
        self._send(OutgoingQuery(GET_PEERS, arguments, contact.endpoint, contact.id, operation), now)
        return operation_id

    def _sampled(self, operation_id: int, query: OutgoingQuery, reply: Reply, now: float) -> OperationEvent:
        if reply.samples is not None:
            self._sample_again_at[query.endpoint] = now + reply.interval_s
        return sample_finished(operation_id, self._reading, query, reply, now)

    def _lookup(self, target: bytes, now: float) -> Lookup:
        start = self._table.closest(target, START_CONTACTS, now)
        return Lookup(target, self._table.own_id, start, is_secure=self._is_secure, is_local=self._is_local)

    def _next_id(self) -> int:
        if len(self._running) >= OPERATIONS_MAX:
            raise NodeBusy(f"{OPERATIONS_MAX} operations are running; wait until one ends")
        self._started += 1
        return self._started

    def _begin(self, operation: LookupOperation, now: float) -> int:
        self._running[operation.operation_id] = operation
        operation.begin(self._sources(operation.lookup, now), now)
        return operation.operation_id

    def _sources(self, lookup: Lookup, now: float) -> list[bytes]:
        if self._table.is_populated(now):
            return []
        return [endpoint for endpoint in self.bootstrap if not lookup.knows(endpoint)]

    def _emit(self, event: OperationEvent) -> None:
        if not isinstance(event, LookupProgress):
            self._running.pop(event.operation_id, None)
        self._report(event)
