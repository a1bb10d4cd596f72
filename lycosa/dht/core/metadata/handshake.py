"""The handshake of the BitTorrent peer protocol (BEP 3), in both directions.

Sizes in bytes, and contents:

1   19
19  "BitTorrent protocol"
8   reserved bits: the extension protocol (BEP 10), the DHT (BEP 5), version 2 (BEP 52)
20  the infohash; of a version 2 torrent, the first 20 bytes of its SHA-256
20  the peer id
"""

from __future__ import annotations

from typing import NamedTuple

from lycosa.dht.core.metadata.failures import PeerError, PeerFailure

PREAMBLE = b"\x13BitTorrent protocol"
HANDSHAKE_BYTES = 68

# Index of the reserved byte, and the bit in it.
EXTENSIONS_BIT = (5, 0x10)
DHT_BIT = (7, 0x01)
VERSION_2_BIT = (7, 0x10)


class PeerHandshake(NamedTuple):
    """The content of a peer's handshake."""

    infohash: bytes
    peer_id: bytes
    extensions: bool
    dht: bool
    version_2: bool


def encode_handshake(infohash: bytes, peer_id: bytes, *, dht: bool) -> bytes:
    """Return our handshake. It offers the extension protocol and, with `dht`, the DHT."""
    reserved = bytearray(8)
    for (index, bit), offered in ((EXTENSIONS_BIT, True), (DHT_BIT, dht)):
        reserved[index] |= bit if offered else 0
    return PREAMBLE + reserved + infohash[:20] + peer_id


def decode_handshake(data: bytes) -> PeerHandshake:
    """Read the 68 bytes of a handshake. Raises `PeerError`."""
    if not data.startswith(PREAMBLE) or len(data) != HANDSHAKE_BYTES:
        raise PeerError(PeerFailure.PROTOCOL, "no BitTorrent handshake")
    reserved = data[20:28]
    bits = (bool(reserved[index] & bit) for index, bit in (EXTENSIONS_BIT, DHT_BIT, VERSION_2_BIT))
    return PeerHandshake(data[28:48], data[48:68], *bits)
