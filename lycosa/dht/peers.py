"""Fetches metadata from peers over TCP: up to thousands of conversations at a time, with bounded memory.

    async with MetadataFetcher(os.urandom) as fetcher:
        metadata = await fetcher.fetch(infohash, endpoints)     # raises NoMetadata

    fetch = fetcher.start(infohash)                             # while a lookup still finds peers
    fetch.add_peer(endpoint)
    fetch.no_more_peers()
    metadata = await fetch.result()

`core/metadata` has the protocol. Connections are `asyncio.Protocol`s, which take a third less time than streams, and no
more than bare sockets (measured on uvloop).
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self, cast

from lycosa.core.errors import NoMetadata
from lycosa.dht.core.endpoints import NONE_ALLOWED, AllowedNetworks, is_contactable, site_of, unpack, with_port
from lycosa.dht.core.metadata.assembly import Assembly
from lycosa.dht.core.metadata.conversation import (
    METADATA_BYTES_MAX,
    Conversation,
    DhtPortReceived,
    MetadataOffered,
    PeerEvent,
    PieceReceived,
    Stage,
    StageLimits,
)
from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.peer_gate import PeerGate
from lycosa.dht.core.metadata.wire import PIECE_BYTES

PEERS_MAX = 200
"""Maximum number of peers of one fetch: as many as a few DHT answers have."""

PEER_ID_PREFIX = b"-LY0001-"
"""Client and version in the format of BEP 20."""

ADDRESS_WAIT_S = 0.25

LOCAL_ERRORS = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EADDRINUSE}
)
"""Errors of our own system, which are not failures of the peer."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Bounds of one fetch, and of all fetches together."""

    connections_max: int = 500
    """Half of the usual limit of open files. Further fetches wait."""
    connections_per_fetch: int = 3
    in_flight_bytes_max: int = 64 * 1024 * 1024
    """Bound on the received and requested pieces, and on metadata not yet released. The first fetch that finds no room
    can also use a reserve of `metadata_bytes_max`, so fetches do not deadlock."""
    metadata_bytes_max: int = METADATA_BYTES_MAX
    stages: StageLimits = field(default_factory=StageLimits)


class MetadataFetch:
    """`infohash` has 20 bytes, or 32 for version 2. `failures` counts why peers did not deliver."""

    def __init__(self, infohash: bytes, fetcher: MetadataFetcher, *, peers_max: int, holds: bool) -> None:
        self.infohash = infohash
        self.connects_left = peers_max
        self.held_bytes = 0
        self._holds = holds
        self.failures: Counter[PeerFailure] = Counter()
        self.assembly = Assembly(infohash)
        self.connections: set[PeerConnection] = set()
        self.candidates: deque[bytes] = deque()
        self.waits_for_hosts = 0
        self.counted_bytes = 0
        self.is_complete = False
        self._fetcher = fetcher
        self._seen: set[bytes] = set()
        self._result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def add_peer(self, endpoint: bytes) -> None:
        """Known peers, and peers beyond PEERS_MAX, are ignored."""
        if self._result.done() or endpoint in self._seen or len(self._seen) >= PEERS_MAX:
            return
        self._seen.add(endpoint)
        self.candidates.append(endpoint)
        self._fetcher.connect_more(self)

    def no_more_peers(self) -> None:
        """Let the fetch fail when all added peers have failed."""
        self.is_complete = True
        self.fail_if_hopeless()

    async def result(self) -> bytes:
        """Return the info dict. Raises `NoMetadata`. If the caller is cancelled, the fetch ends."""
        try:
            return await self._result
        except asyncio.CancelledError:
            self.held_bytes = 0
            raise
        finally:
            self.cancel()

    def cancel(self) -> None:
        self._result.cancel()
        self._fetcher.end(self)

    @property
    def peer_count(self) -> int:
        return len(self._seen)

    @property
    def is_done(self) -> bool:
        return self._result.done()

    def deliver(self, metadata: bytes) -> None:
        self.held_bytes = len(metadata) if self._holds else 0
        self._result.set_result(metadata)
        self._fetcher.end(self)

    def release(self) -> None:
        """The metadata has been used: stop counting it as in flight."""
        self.held_bytes = 0
        self._fetcher.end(self)

    def fail_if_hopeless(self) -> None:
        if self.is_done or not self.is_complete or self.candidates or self.connections or self.waits_for_hosts:
            return
        tried = ", ".join(f"{count} {reason.value}" for reason, count in self.failures.most_common())
        self._result.set_exception(NoMetadata(f"{self.infohash.hex()}: no peer delivered ({tried or 'no peers'})"))
        self._result.exception()  # marks it as retrieved, in case nobody awaits the result
        self._fetcher.end(self)


class PeerConnection(asyncio.Protocol):
    """The connection of a conversation, with its timer."""

    def __init__(
        self, endpoint: bytes, fetch: MetadataFetch, conversation: Conversation, owner: MetadataFetcher
    ) -> None:
        self.endpoint, self.fetch, self.conversation = endpoint, fetch, conversation
        self.connecting: asyncio.Task[None] | None = None
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self.keep_time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_closed:
            self._transport.abort()
            return
        self.conversation.receive_connected(self._loop.time())
        self.flush()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        failure: PeerFailure | None = None
        try:
            self.conversation.receive_bytes(data, self._loop.time())
        except PeerError as error:
            failure = error.reason
        # Handle the events that came before the error, too: they may complete the metadata.
        while event := self.conversation.next_event():
            try:
                self._owner.receive_event(self, event)
            except PeerError as error:
                failure = error.reason
                break
        if failure is not None:
            self.close(failure)
        elif not self._is_closed:
            self.flush()

    def connection_lost(self, _: Exception | None) -> None:
        self.close(PeerFailure.CLOSED)

    def flush(self) -> None:
        self.keep_time()
        if self._transport is not None and (data := self.conversation.bytes_to_send()):
            self._transport.write(data)

    def close(self, failure: PeerFailure | None) -> None:
        """`failure` is None if the connection is no longer needed."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        if self._transport is not None:
            self._transport.abort()
        elif self.connecting is not None:
            self.connecting.cancel()
        self._owner.receive_closed(self, failure)

    def keep_time(self) -> None:
        """A timer that fires too early only sets the next timer."""
        at = self.conversation.next_timer()
        if self._timer is None or self._timer.when() > at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(at, self._handle_timer)

    def _handle_timer(self) -> None:
        self._timer = None
        try:
            self.conversation.handle_timer(self._loop.time())
        except PeerError as error:
            self.close(error.reason)
        else:
            self.keep_time()


class MetadataFetcher:
    """`dht_port` is the port of our DHT node, which is sent to peers. `on_dht_node` gets the endpoint of each DHT node
    that a peer reports."""

    def __init__(
        self,
        random_bytes: Callable[[int], bytes],
        *,
        limits: FetchLimits | None = None,
        allowed: AllowedNetworks = NONE_ALLOWED,
        local_ip: str | None = None,
        dht_port: int | None = None,
        on_dht_node: Callable[[bytes], None] = lambda _: None,
        may_connect: Callable[[bytes, float], bool] = lambda _endpoint, _now: True,
    ) -> None:
        self._may_connect = may_connect
        self._retry: asyncio.TimerHandle | None = None
        self._random_bytes, self._allowed, self._local_ip = random_bytes, allowed, local_ip
        self._dht_port, self._on_dht_node = dht_port, on_dht_node
        self.limits = limits or FetchLimits()
        self._gate = PeerGate(allowed)
        self._tasks = asyncio.TaskGroup()
        self._fetches: set[MetadataFetch] = set()
        self._waiting_for_room: dict[MetadataFetch, None] = {}
        self._waiting_for_bytes: dict[MetadataFetch, None] = {}
        self._first_for_bytes: MetadataFetch | None = None
        self._waiting_for_host: dict[bytes, list[tuple[MetadataFetch, bytes]]] = {}
        self.connection_count = 0
        self.in_flight_bytes = 0

    @property
    def waiting_fetches(self) -> int:
        return len(self._waiting_for_room)

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for fetch in list(self._fetches):
            fetch.cancel()
        if self._retry is not None:
            self._retry.cancel()
        await self._tasks.__aexit__(None, None, None)  # the caller's error is not wrapped in a group

    def start(self, infohash: bytes, *, peers_max: int = PEERS_MAX, holds: bool = False) -> MetadataFetch:
        """Fetch from at most `peers_max` peers. With `holds`, the metadata counts as in flight until `release`."""
        fetch = MetadataFetch(infohash, self, peers_max=peers_max, holds=holds)
        self._fetches.add(fetch)
        return fetch

    async def fetch(self, infohash: bytes, endpoints: Iterable[bytes]) -> bytes:
        """Return the info dict from one of these peers. Raises `NoMetadata`."""
        fetch = self.start(infohash)
        for endpoint in endpoints:
            fetch.add_peer(endpoint)
        fetch.no_more_peers()
        return await fetch.result()

    # --- connecting

    def connect_more(self, fetch: MetadataFetch) -> None:
        while fetch.candidates and not fetch.is_done and len(fetch.connections) < self.limits.connections_per_fetch:
            if self.connection_count >= self.limits.connections_max:
                self._waiting_for_room[fetch] = None
                return
            if not fetch.connects_left:
                fetch.candidates.clear()
                break
            endpoint, now = fetch.candidates.popleft(), asyncio.get_running_loop().time()
            if self._gate.is_busy(endpoint):
                self._waiting_for_host.setdefault(site_of(endpoint), []).append((fetch, endpoint))
                fetch.waits_for_hosts += 1
            elif refused := self._gate.refusal(endpoint, now):
                fetch.failures[refused] += 1
            elif not self._may_connect(endpoint, now):
                fetch.candidates.appendleft(endpoint)
                self._waiting_for_room[fetch] = None
                self._connect_later()
                return
            elif refused := self._gate.open(endpoint, now):
                fetch.failures[refused] += 1
            else:
                fetch.connects_left -= 1
                self._connect(fetch, endpoint)
        fetch.fail_if_hopeless()

    def _connect_later(self) -> None:
        if self._retry is None:
            self._retry = asyncio.get_running_loop().call_later(ADDRESS_WAIT_S, self._connect_now)

    def _connect_now(self) -> None:
        self._retry = None
        self._connect_waiting()

    def _connect_waiting(self) -> None:
        while self._waiting_for_room and self.connection_count < self.limits.connections_max and self._retry is None:
            self.connect_more(_pop_first(self._waiting_for_room))

    def _connect(self, fetch: MetadataFetch, endpoint: bytes) -> None:
        conversation = Conversation(
            fetch.infohash,
            PEER_ID_PREFIX + self._random_bytes(20 - len(PEER_ID_PREFIX)),
            asyncio.get_running_loop().time(),
            limits=self.limits.stages,
            size_bytes_max=self.limits.metadata_bytes_max,
            dht_port=self._dht_port,
        )
        connection = PeerConnection(endpoint, fetch, conversation, self)
        fetch.connections.add(connection)
        self.connection_count += 1
        connection.connecting = self._tasks.create_task(self._connect_socket(connection))

    async def _connect_socket(self, connection: PeerConnection) -> None:
        local = (self._local_ip, 0) if self._local_ip else None
        try:
            await asyncio.get_running_loop().create_connection(
                lambda: connection, *unpack(connection.endpoint), local_addr=local
            )
        except OSError as error:
            connection.close(PeerFailure.LOCAL if error.errno in LOCAL_ERRORS else PeerFailure.UNREACHABLE)

    def receive_closed(self, connection: PeerConnection, failure: PeerFailure | None) -> None:
        """Continue the fetches that waited for this host, for a free connection, or for free bytes."""
        fetch, endpoint = connection.fetch, connection.endpoint
        self.connection_count -= 1
        self._gate.close(endpoint, failure, asyncio.get_running_loop().time())
        fetch.connections.discard(connection)
        fetch.assembly.remove_peer(connection)
        if failure is not None:
            fetch.failures[failure] += 1
        self._count_bytes(fetch)
        for waiting, peer in self._waiting_for_host.pop(site_of(endpoint), ()):
            waiting.waits_for_hosts -= 1
            if not waiting.is_done:
                waiting.candidates.append(peer)
                self.connect_more(waiting)
        self.connect_more(fetch)
        self._ask_all(fetch)
        self._connect_waiting()

    # --- pieces

    def receive_event(self, connection: PeerConnection, event: PeerEvent) -> None:
        """Raises `PeerError` if the connection is no longer useful."""
        fetch = connection.fetch
        if fetch.is_done:
            return
        if isinstance(event, DhtPortReceived):
            node = with_port(connection.endpoint, event.port)
            if is_contactable(node, self._allowed):
                self._on_dht_node(node)
            return
        if isinstance(event, MetadataOffered):
            fetch.assembly.add_peer(connection, event.size_bytes)
        elif isinstance(event, PieceReceived):
            metadata = fetch.assembly.receive(connection, event.piece, event.data)
            if metadata is not None:
                fetch.deliver(metadata)
                return
        else:
            fetch.assembly.reject(connection, event.piece)
        self._ask_all(fetch)

    def _ask_all(self, fetch: MetadataFetch) -> None:
        now = asyncio.get_running_loop().time()
        for connection in fetch.connections:
            conversation = connection.conversation
            if conversation.stage is not Stage.PIECES or not conversation.requests_free:
                continue
            if not (room := self._room_for(fetch)):
                self._waiting_for_bytes[fetch] = None
                return
            for piece in fetch.assembly.assign(connection, min(room, conversation.requests_free)):
                conversation.request(piece, now)
            self._count_bytes(fetch)
            connection.flush()

    def _room_for(self, fetch: MetadataFetch) -> int:
        """Return how many pieces may be requested. The first fetch that finds no room gets the reserve."""
        free_bytes = self.limits.in_flight_bytes_max - self.in_flight_bytes
        ordinary = (free_bytes - self.limits.metadata_bytes_max) // PIECE_BYTES
        if ordinary > 0:
            return ordinary
        if self._first_for_bytes is None:
            self._first_for_bytes = fetch
        return max(0, free_bytes // PIECE_BYTES) if self._first_for_bytes is fetch else 0

    def _count_bytes(self, fetch: MetadataFetch) -> None:
        """Update the bytes in flight. If the fetch released some, waiting fetches continue."""
        held_bytes = fetch.held_bytes if fetch.is_done else fetch.assembly.held_bytes
        change = held_bytes - fetch.counted_bytes
        fetch.counted_bytes = held_bytes
        self.in_flight_bytes += change
        if self._first_for_bytes is fetch and (fetch.is_done or not fetch.connections):
            self._first_for_bytes = None
            change = min(change, -1)
        if change < 0 and self._waiting_for_bytes:
            asyncio.get_running_loop().call_soon(self._request_for_waiting)

    def _request_for_waiting(self) -> None:
        for _ in range(len(self._waiting_for_bytes)):
            fetch = _pop_first(self._waiting_for_bytes)
            self._ask_all(fetch)
            if fetch in self._waiting_for_bytes:  # still no room, so there is none for the others either
                return

    def end(self, fetch: MetadataFetch) -> None:
        self._fetches.discard(fetch)
        self._waiting_for_room.pop(fetch, None)
        self._waiting_for_bytes.pop(fetch, None)
        self._count_bytes(fetch)
        fetch.candidates.clear()
        for connection in list(fetch.connections):
            connection.close(None)
        fetch.assembly.clear()


def _pop_first(fetches: dict[MetadataFetch, None]) -> MetadataFetch:
    fetch = next(iter(fetches))
    del fetches[fetch]
    return fetch
