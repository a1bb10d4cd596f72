"""A DHT node on one local address (BEP 5, 32, 33, 42, 43, 45, 51): a state machine without I/O.

The shell (`dht/udp.py`) has the socket and the clock:

    shell -> receive_datagram, handle_timer, operations   with the current time
    shell <- datagrams_to_send, next_timer, next_event    after each of the calls above

The sender of a query is verified before it may enter the table. An answer updates the table, the operation that sent
the query, and the votes for our address.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Unpack

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import IPV4, IPV6, AllowedNetworks, Contact, family, ip_of, is_contactable, port_of
from lycosa.dht.core.events import (
    Event,
    ExternalAddressChanged,
    JoinFinished,
    NodeStatus,
    PeerAnnounced,
    PeersWanted,
    Reachability,
    SavedTable,
    Traffic,
)
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.krpc import PING, ErrorMessage, KrpcError, Query, Reply, decode_message, encode_error, encode_query
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.operations import Operations, PeersOptions
from lycosa.dht.core.responder import Neighbourhood, Responder
from lycosa.dht.core.routing.answers import AnswerReader
from lycosa.dht.core.routing.maintenance import Maintenance, PingChore
from lycosa.dht.core.routing.table import RoutingTable
from lycosa.dht.core.secure_id import ExternalAddressVotes, is_exempt, is_secure, secure_id
from lycosa.dht.core.tokens import SECRET_BYTES, TokenIssuer
from lycosa.dht.core.transactions import REFUSED, OutgoingQueries, OutgoingQuery, SilentEndpoints, Transactions

EVENTS_MAX = 10_000
"""Maximum number of events that wait for the shell; beyond it the oldest are dropped."""
STRANGERS_EVENTS_MAX = EVENTS_MAX // 2
"""While more events wait, announces and requests from other nodes are not reported, so that they do not push out the
results of our own operations."""
OFFLINE_S = 30.0
"""If no datagram arrives for this long, our link may be down. Missing answers then do not count as failures (BEP
45)."""
UNSOLICITED_S = 900.0
"""A query from an endpoint that we have not contacted for this many seconds shows that no NAT blocks queries to us."""
ASKED_ENDPOINTS_MAX = 4096


class DhtNode:
    """A node at the local address `endpoint`. The nodes of a process share a `Neighbourhood`."""

    def __init__(
        self,
        endpoint: bytes,
        config: NodeConfig,
        random_bytes: Callable[[int], bytes],
        *,
        shared: Neighbourhood | None = None,
    ) -> None:
        self.endpoint = endpoint
        self.family = family(endpoint)
        self.traffic = Traffic()
        self._config = config
        self._shared = shared = shared or Neighbourhood()
        self._outbox: list[tuple[bytes, bytes]] = []
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._routers: frozenset[bytes] = frozenset()
        self._heard_at = self._started_at = -math.inf
        self._reachability = ReachabilityTest()
        own_ip = config.external_ip or (ip_of(endpoint) if is_contactable(endpoint) else b"")
        self._address = ExternalAddress(own_ip, random_bytes)
        self._limits = shared.limits
        is_local = partial(is_local_endpoint, config.allowed_networks)
        self.table = RoutingTable(self._address.new_id(), -math.inf, is_secure=is_secure_contact, is_local=is_local)
        shared.tables.setdefault(self.family, self.table)
        shared.offers.setdefault(self.family, self._consider)
        self._transactions = Transactions(random_bytes)
        self._silent = SilentEndpoints()
        self._outgoing = OutgoingQueries(self._transactions, self._limits.query_wait_s, self._transmit)
        self._maintenance = Maintenance(random_bytes)
        self._responder = Responder(
            self.table,
            shared,
            TokenIssuer(random_bytes(SECRET_BYTES)),
            random_bytes,
            family=self.family,
            config=config,
            on_infohash=partial(report_infohash, self._events) if config.report_infohashes else None,
        )
        self._operations = Operations(
            self.table,
            shared.peers[self.family],
            AnswerReader(self.family, config.allowed_networks, self._silent),
            self._outgoing.send,
            self._events.append,
            is_secure=is_secure_contact,
            is_local=is_local,
        )
        self.peers = shared.peers[self.family]

    @property
    def node_id(self) -> bytes:
        return self.table.own_id

    def start(
        self, saved: SavedTable | None, bootstrap: Sequence[bytes], now: float, *, routers: Sequence[bytes] = ()
    ) -> None:
        """`routers` are queried like `bootstrap` nodes, but never enter the table or a file."""
        own_id = saved.node_id if saved is not None and self._address.suits(saved.node_id) else self.node_id
        self.table.rebase(own_id, now)
        self._routers = frozenset(routers)
        self._operations.bootstrap = (*dict.fromkeys([*bootstrap, *routers]),)
        if saved is not None:
            self.table.restore(filter(self._may_keep, saved.contacts), now)
        self._started_at = now
        self._reachability.start(now)
        self._maintenance.start(now)

    def receive_datagram(self, data: bytes, source: bytes, now: float) -> None:
        traffic = self.traffic
        traffic.datagrams_in += 1
        traffic.bytes_in += len(data)
        if source[-2:] == b"\0\0":
            return
        self._heard_at = now
        try:
            message = decode_message(data)
        except KrpcError as error:
            traffic.malformed += 1
            if error.transaction is not None:
                self._refuse(error, error.transaction, source, now)
            return
        if isinstance(message, Query):
            self._receive_query(message, source, now)
        elif isinstance(message, Reply):
            self._receive_reply(message, source, now)
        else:
            self._receive_error(message, source, now)

    def datagrams_to_send(self) -> list[tuple[bytes, bytes]]:
        """Return the datagrams with their destinations, each only once."""
        outbox, self._outbox = self._outbox, []
        return outbox

    def next_timer(self) -> float | None:
        if self._started_at == -math.inf:
            return None
        return min(self._maintenance.next_timer, self._outgoing.next_timer(), self._transactions.next_timer())

    def handle_timer(self, now: float) -> None:
        self._outgoing.flush(now)
        for query in self._outgoing.take_refused():
            self._unanswered(query, REFUSED, now)
        for query, failed in self._transactions.overdue(now):
            if failed:
                self._fail(query, now)
            elif query.operation is not None:
                query.operation.stalled(query, now)
        if now >= self._maintenance.next_timer:
            self._do_chores(now)

    def next_event(self) -> Event | None:
        return self._events.popleft() if self._events else None

    # Operations. Each method returns the `operation_id` of its events.

    def find_node(self, target: bytes, now: float) -> int:
        """Event: LookupFinished."""
        return self._operations.find_node(target, now)

    def get_peers(self, infohash: bytes, now: float, **options: Unpack[PeersOptions]) -> int:
        """Events: LookupProgress for new peers, then LookupFinished. See `PeersOptions`."""
        return self._operations.get_peers(infohash, now, **options)

    def announce(self, infohash: bytes, port: int | None, now: float, *, seed: bool = False) -> int:
        """Announce a peer at our address and `port` (None: the port of this node). Event: AnnounceFinished."""
        return self._operations.announce(infohash, port, port_of(self.endpoint), now, seed=seed)

    def sample_infohashes(self, contact: Contact, target: bytes, now: float) -> int:
        """BEP 51. Event: InfohashesSampled, or QueryFinished with the error."""
        return self._operations.sample_infohashes(contact, target, now)

    def ping(self, endpoint: bytes, now: float) -> int:
        """If the node answers, it may enter the table. Event: QueryFinished."""
        return self._operations.ping(endpoint, now)

    def cancel(self, operation_id: int, now: float) -> None:
        """A cancelled operation sends no event."""
        self._operations.cancel(operation_id)

    def save(self, now: float) -> SavedTable:
        return SavedTable(self.node_id, tuple(self.table.save()))

    def closest_good(self, target: bytes, count: int, now: float) -> list[Contact]:
        return self.table.closest_good(target, count, now)

    def status(self, now: float) -> NodeStatus:
        return NodeStatus(
            node_id=self.node_id,
            external_ip=self._address.ip,
            reachability=self._reachability.result(now),
            contacts=self.table.counts(now),
            peers=len(self.peers),
            infohashes=self.peers.infohash_count(),
            outstanding=len(self._transactions),
            waiting=len(self._outgoing),
            operations=len(self._operations),
            round_trip_s=self._transactions.round_trip_s,
            traffic=self.traffic,
        )

    def validate(self) -> None:
        self.table.validate()
        self._transactions.validate()
        self.peers.validate()

    # Queries from other nodes.

    def _receive_query(self, query: Query, source: bytes, now: float) -> None:
        self.traffic.queries_in += 1
        if self._config.read_only or query.id == self.table.own_id:
            return
        if not self._limits.admits(source, now):
            self.traffic.limited += 1
            return
        contact = Contact(query.id, source)
        if not self.table.queried(contact, now) and not query.read_only:
            self._reachability.queried(source, now)
            self._consider(contact, now)
        self.traffic.answers_out += self._answer(self._responder.answer(query, source, now), source, now)

    def _consider(self, contact: Contact, now: float) -> None:
        if self._may_keep(contact):
            self._maintenance.consider(contact, self.table, now)

    def _may_keep(self, node: Contact) -> bool:
        return node.endpoint not in self._routers and is_contactable(node.endpoint, self._config.allowed_networks)

    def _refuse(self, error: KrpcError, transaction: bytes, source: bytes, now: float) -> None:
        if self._config.read_only or not self._limits.admits(source, now):
            return
        answer = encode_error(transaction, error.code, str(error).encode(), source)
        self.traffic.errors_out += self._answer(answer, source, now)

    def _answer(self, data: bytes, source: bytes, now: float) -> bool:
        if not self._limits.may_send(len(data), now):
            self.traffic.limited += 1
            return False
        self._post(data, source)
        return True

    def _post(self, data: bytes, destination: bytes) -> None:
        self.traffic.datagrams_out += 1
        self.traffic.bytes_out += len(data)
        self._outbox.append((data, destination))

    # Our queries.

    def _transmit(self, transaction_id: bytes, query: OutgoingQuery, now: float) -> None:
        self.traffic.queries_out += 1
        self._reachability.asked(query.endpoint, now)
        data = encode_query(
            transaction_id, query.method, self.node_id, query.arguments, read_only=self._config.read_only
        )
        self._post(data, query.endpoint)

    def _ping(self, contact: Contact | None, now: float) -> None:
        if contact is not None:
            self._outgoing.send(OutgoingQuery(PING, b"", contact.endpoint, contact.id), now)

    def _receive_reply(self, reply: Reply, source: bytes, now: float) -> None:
        query = self._transactions.close(reply.transaction, source, now)
        if query is None:
            self.traffic.unexpected += 1
            return
        self.traffic.answers_in += 1
        self._silent.answered(source)
        if reply.id == self.node_id or query.expected_id not in {None, reply.id}:
            self.table.renamed(source, reply.id)
            self._unanswered(query, "another node answered", now)
            return
        if self._may_keep(contact := Contact(reply.id, source)):
            was_empty = not len(self.table)
            self._ping(self.table.responded(contact, now), now)
            if was_empty and len(self.table):
                self._maintenance.first_contact(now)
        if query.operation is not None:
            query.operation.answered(query, reply, now)
        if self._address.vote(reply.own_endpoint, source):
            self._move(now)

    def _move(self, now: float) -> None:
        if not self._address.suits(self.node_id):
            self.table.rebase(self._address.new_id(), now)
            self._maintenance.moved(now)
        self._events.append(ExternalAddressChanged(self._address.ip, self.node_id))

    def _receive_error(self, error: ErrorMessage, source: bytes, now: float) -> None:
        query = self._transactions.close(error.transaction, source, now)
        if query is None:
            self.traffic.unexpected += 1
            return
        self.traffic.errors_in += 1
        self._unanswered(query, f"error {error.code}: {error.message.decode(errors='replace')}", now)

    def _fail(self, query: OutgoingQuery, now: float) -> None:
        self.traffic.failed += 1
        if not self._is_online(now):
            self._unanswered(query, "no answer", now)
            return
        self._silent.failed(query.endpoint, now)
        contact = query.contact()
        if contact is not None:
            self._ping(self.table.failed(contact, now), now)
        if query.operation is not None:
            query.operation.failed(query, "no answer", now)

    def _unanswered(self, query: OutgoingQuery, reason: str, now: float) -> None:
        """End a query without counting a failure of the queried node."""
        contact = query.contact()
        if contact is not None:
            self.table.unchecked(contact)
        if query.operation is not None:
            query.operation.failed(query, reason, now)

    def _do_chores(self, now: float) -> None:
        reachable = self._reachability.result(now) is Reachability.REACHABLE
        for chore in self._maintenance.chores(self.table, now, reachable=reachable, online=self._is_online(now)):
            if isinstance(chore, PingChore):
                self._ping(chore.contact, now)
            elif chore.join:
                offer = self._shared.offers.get(IPV4 + IPV6 - self.family)
                self._operations.join(offer, partial(self._joined, now), now)
            else:
                self._operations.search(chore.target, now)

    def _joined(self, now: float) -> None:
        self._maintenance.joined(self.table, now)
        self._events.append(JoinFinished(self.table.counts(now).good))

    def _is_online(self, now: float) -> bool:
        return now - self._heard_at < OFFLINE_S


class ReachabilityTest:
    """We are reachable if nodes that we have not contacted recently send queries."""

    def __init__(self) -> None:
        self._asked_at: RecentDict[bytes, float] = RecentDict(ASKED_ENDPOINTS_MAX)
        self._unsolicited_at = self._started_at = -math.inf

    def start(self, now: float) -> None:
        self._started_at = now

    def asked(self, endpoint: bytes, now: float) -> None:
        self._asked_at[endpoint] = now

    def queried(self, endpoint: bytes, now: float) -> None:
        if self._asked_at.get(endpoint, -math.inf) + UNSOLICITED_S < now:
            self._unsolicited_at = now

    def result(self, now: float) -> Reachability:
        if now < self._unsolicited_at + UNSOLICITED_S:
            return Reachability.REACHABLE
        return Reachability.UNKNOWN if now < self._started_at + UNSOLICITED_S else Reachability.UNREACHABLE


class ExternalAddress:
    """Our IP address as other nodes see it, and the ids that fit it (BEP 42)."""

    def __init__(self, ip: bytes, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._votes = ExternalAddressVotes(ip)

    @property
    def ip(self) -> bytes:
        """The packed address; b"" while it is unknown."""
        return self._votes.address

    def vote(self, own_endpoint: bytes, source: bytes) -> bool:
        """Return whether the address that a node reports changes ours."""
        return bool(own_endpoint) and self._votes.vote(own_endpoint, source)

    def new_id(self) -> bytes:
        random = self._random_bytes(ID_BYTES)
        return secure_id(self.ip, random) if self.ip else random

    def suits(self, node_id: bytes) -> bool:
        return not self.ip or is_secure(node_id, self.ip)


def report_infohash(events: deque[Event], event: PeerAnnounced | PeersWanted) -> None:
    """Report what another node announced or requested, unless too many events wait."""
    if len(events) < STRANGERS_EVENTS_MAX:
        events.append(event)


def is_secure_contact(contact: Contact) -> bool:
    """Whether the id of a contact fits its address (BEP 42)."""
    return is_secure(contact.id, ip_of(contact.endpoint))


def is_local_endpoint(allowed: AllowedNetworks, endpoint: bytes) -> bool:
    """Whether an endpoint is on a local or allowed network, where many nodes share a few addresses."""
    ip = ip_of(endpoint)
    return is_exempt(ip) or ip in allowed
