"""One conversation with one peer about the metadata of one infohash (BEP 9 and 10), without I/O.

    CONNECTING --connected--> HANDSHAKE --68 bytes--> EXTENSIONS --their dict--> PIECES --> (closed by the owner)

The owner connects, passes on the bytes that arrive, sends `bytes_to_send`, and requests pieces with `request`. After a
`PeerError` from `receive_*` or `handle_timer`, the owner handles the remaining events and closes the connection.

`now` is monotonic seconds. Each stage and the whole conversation have deadlines. Whatever a peer sends, we hold at most
one message and a few pieces in memory.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from lycosa.dht.core.metadata.failures import PeerError, PeerFailure
from lycosa.dht.core.metadata.handshake import HANDSHAKE_BYTES, PREAMBLE, decode_handshake, encode_handshake
from lycosa.dht.core.metadata.wire import (
    DATA,
    EXTENDED,
    EXTENSION_HANDSHAKE,
    EXTENSION_OFFER,
    METADATA_ID,
    PIECE_BYTES,
    PORT,
    REJECT,
    REQUEST,
    MessageReader,
    PeerMessage,
    decode_extension_handshake,
    decode_metadata_message,
    decode_port,
    encode_metadata_message,
    encode_port,
    piece_bytes,
)

METADATA_BYTES_MAX = 10 * 1024 * 1024
"""Enough for a torrent of half a million pieces, or of 100,000 files. bitmagnet has the same limit, libtorrent 3
MiB."""

REQUESTS_MAX = 8
"""Maximum number of open requests, for 128 KiB together. libtorrent sends 2 requests at a time, but accepts
hundreds."""

REQUEST_COST_BYTES = PIECE_BYTES + 256
"""Maximum number of bytes that a peer may send for one request."""

UNASKED_BYTES_MAX = 1024 * 1024 + 64 * 1024
"""Maximum number of unrequested bytes: the largest bitfield, and the haves of a busy minute."""

UNASKED_MESSAGES_MAX = 2048
"""Maximum number of unrequested messages: haves, unchokes, keep-alives, requests to us, unknown ones. Honest peers send
a few dozen."""

REJECTS_SENT_MAX = 64
"""Maximum number of a peer's requests that are rejected as BEP 9 demands. Further ones are ignored."""


@dataclass(frozen=True, slots=True)
class StageLimits:
    """Maximum seconds for each stage."""

    connect_s: float = 5.0
    """TCP repeats a SYN after 1 and 3 seconds."""
    handshake_s: float = 10.0
    """For the handshake, and again for the extension handshake."""
    piece_s: float = 15.0
    """From a request or a piece to the next piece. The client Transmission delays answers by four seconds or more."""
    total_s: float = 60.0


class MetadataOffered(NamedTuple):
    """The peer has the metadata."""

    size_bytes: int


class PieceReceived(NamedTuple):
    """A requested piece of the right size arrived."""

    piece: int
    data: bytes


class PieceRejected(NamedTuple):
    """The peer refused to deliver this piece."""

    piece: int


class DhtPortReceived(NamedTuple):
    """The peer has a DHT node at this UDP port."""

    port: int


PeerEvent = MetadataOffered | PieceReceived | PieceRejected | DhtPortReceived


class Stage(Enum):
    """The stage of a conversation."""

    CONNECTING = "connecting"
    HANDSHAKE = "handshake"
    EXTENSIONS = "extensions"
    PIECES = "pieces"


class Conversation:
    """`dht_port` is the UDP port of our DHT node, sent to peers that also have a DHT node."""

    def __init__(
        self,
        infohash: bytes,
        peer_id: bytes,
        now: float,
        *,
        limits: StageLimits,
        size_bytes_max: int = METADATA_BYTES_MAX,
        dht_port: int | None = None,
    ) -> None:
        self.stage = Stage.CONNECTING
        self._infohash, self._peer_id, self._dht_port = infohash[:20], peer_id, dht_port
        self._limits, self._size_bytes_max = limits, size_bytes_max
        self._ends_at = now + limits.total_s
        self._stage_ends_at = now + limits.connect_s
        self._handshake = bytearray()
        self._reader = MessageReader()
        self._to_send = bytearray()
        self._events: deque[PeerEvent] = deque()
        self._bytes_left, self._messages_left = UNASKED_BYTES_MAX, UNASKED_MESSAGES_MAX
        self._rejects_left = REJECTS_SENT_MAX
        self._metadata_id = 0
        self._size_bytes = 0
        self._requested: set[int] = set()
        self._has_dht_port = False

    # --- actions of the owner

    def bytes_to_send(self) -> bytes:
        """Return the bytes to send, each only once."""
        data = bytes(self._to_send)
        self._to_send.clear()
        return data

    def next_event(self) -> PeerEvent | None:
        return self._events.popleft() if self._events else None

    @property
    def requests_free(self) -> int:
        return REQUESTS_MAX - len(self._requested)

    def request(self, piece: int, now: float) -> None:
        """Allowed only in the stage PIECES and while `requests_free` is positive."""
        assert self.stage is Stage.PIECES
        assert self.requests_free > 0
        if not self._requested:
            self._stage_ends_at = now + self._limits.piece_s
        self._requested.add(piece)
        self._bytes_left += REQUEST_COST_BYTES
        self._to_send += encode_metadata_message(self._metadata_id, REQUEST, piece)

    # --- events

    def next_timer(self) -> float:
        # Without open requests the peer is waiting for us, so only the total time counts.
        waits = self.stage is Stage.PIECES and not self._requested
        return self._ends_at if waits else min(self._stage_ends_at, self._ends_at)

    def handle_timer(self, now: float) -> None:
        if now >= self.next_timer():
            raise PeerError(PeerFailure.TIMEOUT, f"no progress: {self.stage.value}")

    def receive_connected(self, now: float) -> None:
        self._enter(Stage.HANDSHAKE, now)
        self._to_send += encode_handshake(self._infohash, self._peer_id, dht=self._dht_port is not None)

    def receive_bytes(self, data: bytes, now: float) -> None:
        allowed = data[: self._bytes_left]
        self._bytes_left -= len(allowed)
        rest = self._receive_handshake(allowed, now) if self.stage is Stage.HANDSHAKE else allowed
        if self.stage is not Stage.HANDSHAKE:
            self._reader.receive(rest)
            while message := self._reader.next_message():
                self._receive_message(message, now)
        if len(allowed) < len(data):
            raise PeerError(PeerFailure.FLOOD, "more bytes than requested")

    # --- internal

    def _enter(self, stage: Stage, now: float) -> None:
        self.stage = stage
        self._stage_ends_at = now + self._limits.handshake_s

    def _count_unasked(self) -> None:
        self._messages_left -= 1
        if self._messages_left < 0:
            raise PeerError(PeerFailure.FLOOD, "more messages than requested")

    def _receive_handshake(self, data: bytes, now: float) -> bytes:
        """Return the bytes after the handshake."""
        missing = HANDSHAKE_BYTES - len(self._handshake)
        self._handshake += data[:missing]
        if not PREAMBLE.startswith(self._handshake[: len(PREAMBLE)]):  # another protocol: do not wait for 68 bytes
            raise PeerError(PeerFailure.PROTOCOL, "no BitTorrent handshake")
        if len(self._handshake) < HANDSHAKE_BYTES:
            return b""
        theirs = decode_handshake(bytes(self._handshake))
        if theirs.infohash != self._infohash:
            raise PeerError(PeerFailure.OTHER_INFOHASH)
        if not theirs.extensions:
            raise PeerError(PeerFailure.NO_EXTENSIONS)
        self._enter(Stage.EXTENSIONS, now)
        self._to_send += EXTENSION_OFFER
        if theirs.dht and self._dht_port is not None:
            self._to_send += encode_port(self._dht_port)
        return data[missing:]

    def _receive_message(self, message: PeerMessage, now: float) -> None:
        extension = message.payload[0] if message.id == EXTENDED and message.payload else None
        if extension == METADATA_ID:
            self._receive_metadata_message(message.payload[1:], now)
            return
        self._count_unasked()
        if extension == EXTENSION_HANDSHAKE:
            self._receive_extension_handshake(message.payload[1:], now)
        elif message.id == PORT:
            port = decode_port(message.payload)
            if not self._has_dht_port:  # one peer must not make us ping thousands of ports
                self._has_dht_port = True
                self._events.append(DhtPortReceived(port))

    def _receive_extension_handshake(self, payload: bytes, now: float) -> None:
        """The first handshake must offer metadata. Later ones may only change the id of metadata messages."""
        theirs = decode_extension_handshake(payload)
        if theirs.metadata_id is not None:
            self._metadata_id = theirs.metadata_id
        if not self._metadata_id:
            raise PeerError(PeerFailure.NO_EXTENSIONS, "the peer does not send metadata")
        if self.stage is Stage.PIECES:
            return
        size_bytes = theirs.metadata_size_bytes or 0
        if size_bytes <= 0:  # the peer does not have the metadata yet
            raise PeerError(PeerFailure.NO_METADATA)
        if size_bytes > self._size_bytes_max:
            raise PeerError(PeerFailure.TOO_LARGE, f"metadata of {size_bytes} bytes")
        self._size_bytes = size_bytes
        self._enter(Stage.PIECES, now)
        self._events.append(MetadataOffered(size_bytes))

    def _receive_metadata_message(self, payload: bytes, now: float) -> None:
        message = decode_metadata_message(payload)
        if message.kind == REQUEST:
            self._count_unasked()
            self._reject(message.piece)
        elif message.kind not in (DATA, REJECT) or message.piece not in self._requested:
            self._count_unasked()
        else:
            self._requested.discard(message.piece)
            self._stage_ends_at = now + self._limits.piece_s
            if message.kind == REJECT:
                self._events.append(PieceRejected(message.piece))
                return
            if message.total_size_bytes not in (None, self._size_bytes):
                raise PeerError(PeerFailure.PROTOCOL, "two sizes of the metadata")
            if len(message.data) != piece_bytes(message.piece, self._size_bytes):
                raise PeerError(PeerFailure.PROTOCOL, f"a piece of {len(message.data)} bytes")
            self._events.append(PieceReceived(message.piece, message.data))

    def _reject(self, piece: int) -> None:
        """BEP 9 demands this of a peer without the metadata."""
        if self._rejects_left and self._metadata_id:
            self._rejects_left -= 1
            self._to_send += encode_metadata_message(self._metadata_id, REJECT, piece)
