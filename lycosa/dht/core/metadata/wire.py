"""Messages after the handshake: framing (BEP 3), the extension protocol (BEP 10), metadata messages (BEP 9).

Sizes in bytes, and contents:

    4  length, big-endian; 0 is a keep-alive
    1  message id
    -  payload; of an extended message (id 20): one byte, 0 for the extension handshake, then a bencoded dict

Only extended messages and the port of a DHT node are read and sent. All others are skipped without being stored. Only
metadata is fetched, never content.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from lycosa.dht.core.bencode import BencodeError, decode_prefix
from lycosa.dht.core.metadata.failures import PeerError, PeerFailure

PORT = 9
EXTENDED = 20
SENT_IDS = frozenset({PORT, EXTENDED})
"""We never send the ids 2 (interested) and 6 (request), which ask for content."""

EXTENSION_HANDSHAKE = 0
METADATA_ID = 1
"""The id of metadata messages to us. A peer chooses the id of metadata messages to itself in its extension
handshake."""

REQUEST, DATA, REJECT = 0, 1, 2

PIECE_BYTES = 16_384
MESSAGE_BYTES_MAX = 1024 * 1024
"""Maximum size of a skipped message, as in libtorrent: the bitfield of 8 million pieces."""

EXTENDED_BYTES_MAX = 32 * 1024
"""Maximum size of a stored message. A piece takes half of this, an extension handshake a few hundred bytes."""

READ_BYTES_MAX = {PORT: 3, EXTENDED: EXTENDED_BYTES_MAX}
"""The messages that are read, with the maximum value of their length field."""

DEPTH_MAX = 4
TOKENS_MAX = 512
"""A client may name dozens of extensions."""

CLIENT = b"Lycosa"


KEEP_ALIVE = -1
"""Stands for the message id of a keep-alive, which has none."""


class PeerMessage(NamedTuple):
    """A message of a peer. The payload is empty if the message is not read."""

    id: int
    payload: bytes = b""


class MessageReader:
    """Splits a stream of bytes into messages. Holds at most the bytes of one call and one unfinished message."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._at = 0
        self._skip_bytes = 0

    def receive(self, data: bytes) -> None:
        del self._buffer[: self._at]
        self._at = 0
        self._buffer += data

    def next_message(self) -> PeerMessage | None:
        """Return the next message, if any: one that is not read, as soon as its id has arrived. Raises `PeerError`."""
        self._skip()
        start = self._at
        here = len(self._buffer) - start
        if self._skip_bytes or here < 4:
            return None
        length = int.from_bytes(self._buffer[start : start + 4])
        if length > MESSAGE_BYTES_MAX:
            raise PeerError(PeerFailure.PROTOCOL, f"a message of {length} bytes")
        if length and here < 5:
            return None
        number = self._buffer[start + 4] if length else KEEP_ALIVE
        if (read_bytes_max := READ_BYTES_MAX.get(number)) is None:
            self._skip_bytes = 4 + length
            return PeerMessage(number)
        if length > read_bytes_max:
            raise PeerError(PeerFailure.PROTOCOL, f"message {number} of {length} bytes")
        if here < 4 + length:
            return None
        self._at = start + 4 + length
        return PeerMessage(number, bytes(self._buffer[start + 5 : self._at]))

    def _skip(self) -> None:
        skipped = min(self._skip_bytes, len(self._buffer) - self._at)
        self._skip_bytes -= skipped
        self._at += skipped


def frame(message_id: int, payload: bytes) -> bytes:
    """Return a message in its frame. Every sent message is built here; only SENT_IDS are allowed."""
    assert message_id in SENT_IDS
    return b"%b%c%b" % ((1 + len(payload)).to_bytes(4), message_id, payload)


def encode_port(port: int) -> bytes:
    """Return the message with the UDP port of our DHT node (BEP 5)."""
    return frame(PORT, port.to_bytes(2))


def decode_port(payload: bytes) -> int:
    """Read the port of a peer's DHT node. Raises `PeerError`."""
    if len(payload) != 2:
        raise PeerError(PeerFailure.PROTOCOL, "a port of other than two bytes")
    return int.from_bytes(payload)


class ExtensionHandshake(NamedTuple):
    """The fields of an extension handshake for BEP 9; None for a missing field."""

    metadata_id: int | None
    metadata_size_bytes: int | None


EXTENSION_OFFER = frame(
    EXTENDED,
    bytes([EXTENSION_HANDSHAKE]) + b"d1:md11:ut_metadatai%dee1:v%d:%be" % (METADATA_ID, len(CLIENT), CLIENT),
)
"""It has no `metadata_size`: we never have metadata to offer."""


def decode_extension_handshake(payload: bytes) -> ExtensionHandshake:
    """Read the dict of an extension handshake. Fields of wrong types count as missing. Raises `PeerError`."""
    fields, _ = _decode_dict(payload)
    extensions = fields.get(b"m")
    metadata_id = extensions.get(b"ut_metadata") if isinstance(extensions, dict) else None
    if not isinstance(metadata_id, int):
        metadata_id = None
    elif not 0 <= metadata_id <= 255:
        raise PeerError(PeerFailure.PROTOCOL, "an extended message id outside 0 to 255")
    size = fields.get(b"metadata_size")
    return ExtensionHandshake(metadata_id, size if isinstance(size, int) else None)


class MetadataMessage(NamedTuple):
    """A message of BEP 9. Messages of an unknown `kind` are ignored."""

    kind: int
    piece: int
    total_size_bytes: int | None = None
    data: bytes = b""


def encode_metadata_message(metadata_id: int, kind: int, piece: int) -> bytes:
    """Return a request or a reject. The peer chose `metadata_id`."""
    return frame(EXTENDED, b"%cd8:msg_typei%de5:piecei%dee" % (metadata_id, kind, piece))


def decode_metadata_message(payload: bytes) -> MetadataMessage:
    """Parse a message of BEP 9. The data of a piece follows the dict. Raises `PeerError`."""
    fields, end = _decode_dict(payload)
    kind, piece, total_size = fields.get(b"msg_type"), fields.get(b"piece"), fields.get(b"total_size")
    if not isinstance(kind, int) or not isinstance(piece, int):
        raise PeerError(PeerFailure.PROTOCOL, "a metadata message without type or piece")
    return MetadataMessage(kind, piece, total_size if isinstance(total_size, int) else None, payload[end:])


def _decode_dict(payload: bytes) -> tuple[dict[bytes, Any], int]:
    try:
        fields, end = decode_prefix(payload, strict=False, max_depth=DEPTH_MAX, max_tokens=TOKENS_MAX)
    except BencodeError as error:
        raise PeerError(PeerFailure.PROTOCOL, f"an extended message: {error}") from error
    if not isinstance(fields, dict):
        raise PeerError(PeerFailure.PROTOCOL, "an extended message without a dict")
    return fields, end


def pieces_of(size_bytes: int) -> int:
    """Return the number of pieces."""
    return -(-size_bytes // PIECE_BYTES)


def piece_bytes(piece: int, size_bytes: int) -> int:
    """Return the size of a piece. Only the last one may be shorter."""
    return min(PIECE_BYTES, size_bytes - piece * PIECE_BYTES)
