"""Makes the datagrams that answer queries. This is the hot path, so answers are joined from bytes."""

from __future__ import annotations

from collections.abc import Callable

from lycosa.dht.core.endpoints import IPV4, IPV6, Contact, ip_of, is_contactable, with_port
from lycosa.dht.core.events import PeerAnnounced, PeersWanted
from lycosa.dht.core.krpc import (
    ANNOUNCE_PEER,
    FIND_NODE,
    GET_PEERS,
    PING,
    PROTOCOL_ERROR,
    SENT_BYTES_MAX,
    WANT_NODES,
    WANT_NODES6,
    Query,
    encode_error,
    encode_reply,
    filter_values,
    return_values,
    sample_values,
)
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.core.peer_store import PeerStore
from lycosa.dht.core.routing.table import RoutingTable
from lycosa.dht.core.tokens import TokenIssuer

ENVELOPE_BYTES = 130
"""Maximum size of an answer without transaction, nodes, peers and filters: keys, node id, token, `ip`, `v`."""
SAMPLE_BYTES_MAX = SENT_BYTES_MAX - ENVELOPE_BYTES - 45
"""Maximum size of the nodes and samples in an answer. 45 bytes are for `interval` and `num`."""
VALUES_MAX = 50
"""Maximum number of peers in an answer, to limit amplification: 400 bytes for IPv4."""


class Neighbourhood:
    """What the nodes of a process share: limits, announced peers, and a table per family (BEP 32)."""

    def __init__(self, limits: NodeLimits | None = None) -> None:
        self.limits = limits or NodeLimits()
        self.tables: dict[int, RoutingTable] = {}
        self.offers: dict[int, Callable[[Contact, float], None]] = {}
        """Address family -> function that receives a contact of this family, found by our node of the other family."""
        self.peers = {IPV4: PeerStore(), IPV6: PeerStore()}


class Responder:
    """Answers the queries to one node."""

    def __init__(
        self,
        table: RoutingTable,
        neighbourhood: Neighbourhood,
        tokens: TokenIssuer,
        random_bytes: Callable[[int], bytes],
        *,
        family: int,
        config: NodeConfig,
        on_infohash: Callable[[PeerAnnounced | PeersWanted], None] | None = None,
    ) -> None:
        self._table = table
        self._tables = neighbourhood.tables
        self._peers = neighbourhood.peers[family]
        self._tokens = tokens
        self._random_bytes = random_bytes
        self._family = family
        self._sample_interval_s = config.sample_interval_s
        self._allowed = config.allowed_networks
        self._on_infohash = on_infohash
        self._peer_bytes = 8 if family == IPV4 else 21
        self._turn = 0

    def answer(self, query: Query, source: bytes, now: float) -> bytes:
        method = query.method
        if method == FIND_NODE:
            values = self._nodes(query, now)
        elif method == GET_PEERS:
            return self._get_peers(query, source, now)
        elif method == PING:
            values = b""
        elif method == ANNOUNCE_PEER:
            return self._announce_peer(query, source, now)
        else:
            values = self._sample_infohashes(query, now)
        return encode_reply(query.transaction, self._table.own_id, source, values)

    def _nodes(self, query: Query, now: float) -> bytes:
        nodes, nodes6 = self._closest(query, now)
        return return_values(nodes=nodes, nodes6=nodes6)

    def _closest(self, query: Query, now: float) -> tuple[bytes | None, bytes | None]:
        """Return the closest contacts of the families in `want`; without `want`, of the query's own family."""
        want = query.want
        if not want:
            compact = self._table.closest_compact(query.target, now)
            return (compact, None) if self._family == IPV4 else (None, compact)
        nodes = self._closest_of(IPV4, query.target, now) if want & WANT_NODES else None
        return nodes, self._closest_of(IPV6, query.target, now) if want & WANT_NODES6 else None

    def _closest_of(self, wanted: int, target: bytes, now: float) -> bytes:
        table = self._table if wanted == self._family else self._tables.get(wanted)
        return table.closest_compact(target, now) if table is not None else b""

    def _get_peers(self, query: Query, source: bytes, now: float) -> bytes:
        infohash = query.target
        if self._on_infohash is not None:
            self._on_infohash(PeersWanted(infohash))
        nodes, nodes6 = self._closest(query, now)
        token = None
        if self._peers.accepts(infohash) and is_contactable(source, self._allowed):
            token = self._tokens.issue(ip_of(source), infohash, now)
        filters = self._peers.filters(infohash, now) if query.scrape else None
        before_id = filter_values(*filters) if filters else b""
        used = ENVELOPE_BYTES + len(query.transaction) + len(before_id) + len(nodes or b"") + len(nodes6 or b"")
        if filters and nodes is not None and nodes6 is not None and used > SENT_BYTES_MAX:
            # BEP 33: if the filters leave too little room, send only the nodes of the query's own family.
            nodes, nodes6 = (nodes, None) if self._family == IPV4 else (None, nodes6)
            used = ENVELOPE_BYTES + len(query.transaction) + len(before_id) + len(nodes or nodes6 or b"")
        self._turn += VALUES_MAX
        room = max(0, min(VALUES_MAX, (SENT_BYTES_MAX - used) // self._peer_bytes))
        peers = self._peers.peers(infohash, room, self._turn, now, without_seeds=query.noseed)
        values = return_values(nodes=nodes, nodes6=nodes6, token=token, values=peers)
        return encode_reply(query.transaction, self._table.own_id, source, values, before_id)

    def _announce_peer(self, query: Query, source: bytes, now: float) -> bytes:
        if not self._tokens.is_valid(query.token, ip_of(source), query.target, now):
            return encode_error(query.transaction, PROTOCOL_ERROR, b"invalid token", source)
        endpoint = with_port(source, query.port) if query.port else source
        if not is_contactable(endpoint, self._allowed):
            # Other nodes would contact this address in their own network.
            return encode_error(query.transaction, PROTOCOL_ERROR, b"not a public address", source)
        if self._peers.announce(query.target, endpoint, now, seed=query.seed) and self._on_infohash is not None:
            self._on_infohash(PeerAnnounced(query.target, endpoint, query.seed))
        return encode_reply(query.transaction, self._table.own_id, source)

    def _sample_infohashes(self, query: Query, now: float) -> bytes:
        nodes, nodes6 = self._closest(query, now)
        chance = int.from_bytes(self._random_bytes(4))
        sample = self._peers.sample(self._sample_interval_s, chance, now)
        room = SAMPLE_BYTES_MAX - len(query.transaction) - len(nodes or b"") - len(nodes6 or b"")
        samples = sample.samples[: room // 20 * 20]
        return sample_values(samples, sample.infohashes, sample.interval_s, nodes=nodes, nodes6=nodes6)
