"""Parses magnet URIs and infohashes as users write them (BEP 9).

    magnet:?xt=urn:btih:<40 hex or 32 base32>&xt=urn:btmh:1220<64 hex>&dn=<name>&x.pe=<address>:<port>

Trackers (`tr`) are ignored, because peers come from the DHT; so are peers (`x.pe`) with host names, which are not
resolved here.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

from lycosa.core.errors import BadMagnet, UsageError
from lycosa.dht.core.endpoints import parse
from lycosa.dht.core.metadata.assembly import has_infohash

PEERS_MAX = 64
TEXT_MAX = 64 * 1024
EXAMPLE = "write magnet:?xt=urn:btih: and 40 hexadecimal digits"


@dataclass(frozen=True, slots=True)
class Magnet:
    """The infohash of a torrent, or the two infohashes of a hybrid torrent."""

    infohash_v1: bytes | None
    infohash_v2: bytes | None
    name: str = ""
    peers: tuple[bytes, ...] = ()
    """The peers in the link (`x.pe`), as compact endpoints."""

    @property
    def infohashes(self) -> tuple[bytes, ...]:
        """Version 1: 20 bytes. Version 2: 32 bytes, of which the DHT uses the first 20."""
        return tuple(each for each in (self.infohash_v1, self.infohash_v2) if each is not None)

    def names(self, metadata: bytes) -> bool:
        """Whether an info dict has all infohashes of the link. A fetch checks only the infohash of its swarm."""
        return all(has_infohash(metadata, infohash) for infohash in self.infohashes)


def parse_magnet(text: str) -> Magnet:
    """Read a magnet URI, or a bare infohash. Raises `BadMagnet`."""
    text = text.strip()
    if len(text) > TEXT_MAX:
        raise BadMagnet(f"{text[:60]}...: longer than {TEXT_MAX} characters")
    if not text.lower().startswith("magnet:"):
        infohash = parse_infohash(text)
        return Magnet(infohash, None) if len(infohash) == 20 else Magnet(None, infohash)
    fields = parse_qsl(text[len("magnet:") :].removeprefix("?"), separator="&")
    topics = [value for key, value in fields if re.fullmatch(r"xt(\.\d+)?", key)]
    mistakes: list[BadMagnet] = []
    v1 = _topic(topics, "urn:btih:", text, 20, mistakes)
    v2 = _topic(topics, "urn:btmh:", text, 32, mistakes)
    if v1 is None and v2 is None:
        raise mistakes[0] if mistakes else BadMagnet(f"{_short(text)}: no infohash in it; {EXAMPLE}")
    name = next((value for key, value in fields if key == "dn"), "")
    endpoints = (_endpoint(value) for key, value in fields if re.fullmatch(r"x\.pe(\.\d+)?", key))
    return Magnet(v1, v2, name, tuple(filter(None, endpoints))[:PEERS_MAX])


def parse_infohash(text: str) -> bytes:
    """Parse an infohash: 40 hexadecimal or 32 base32 digits (20 bytes), or 64 hexadecimal digits (32 bytes).

    `1220`, the multihash prefix of SHA-256, may precede the 64 digits. Raises `BadMagnet`.
    """
    if re.fullmatch(r"[0-9A-Fa-f]{40}|[0-9A-Fa-f]{64}|1220[0-9A-Fa-f]{64}", text):
        return bytes.fromhex(text[-64:])
    if re.fullmatch(r"[A-Za-z2-7]{32}", text):
        return base64.b32decode(text.upper())
    raise BadMagnet(f"{_short(text)}: not an infohash; write 40 hexadecimal digits, or a magnet link")


def _topic(topics: list[str], prefix: str, text: str, size: int, mistakes: list[BadMagnet]) -> bytes | None:
    """Return the infohash of one version.

    Errors are added to `mistakes`, because the link may have a valid infohash of the other version.
    """
    hashes: set[bytes] = set()
    for topic in topics:
        if topic.lower().startswith(prefix):
            try:
                hashes.add(parse_infohash(topic[len(prefix) :]))
            except BadMagnet as error:
                mistakes.append(error)
    if len(hashes) == 1 and len(next(iter(hashes))) == size:
        return hashes.pop()
    if hashes:
        mistakes.append(BadMagnet(f"{_short(text)}: write exactly one infohash of {size} bytes after {prefix}"))
    return None


def _endpoint(text: str) -> bytes | None:
    try:
        return parse(text)
    except UsageError:
        return None


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}..."
