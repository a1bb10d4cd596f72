"""The Bloom filters with which nodes together estimate the numbers of seeds and leechers of a torrent (BEP 33)."""

from __future__ import annotations

from hashlib import sha1
from math import log

FILTER_BYTES = 256
FILTER_BITS = 8 * FILTER_BYTES
HASHES = 2
ESTIMATE_MAX = 6_000
"""Maximum estimate: a filter with more addresses is too full (BEP 33: it breaks down at about 8,000)."""


class ScrapeFilter:
    """A set of IP addresses whose size can be estimated."""

    __slots__ = ("_bits",)

    def __init__(self, data: bytes = bytes(FILTER_BYTES)) -> None:
        if len(data) != FILTER_BYTES:
            raise ValueError(f"a filter has {FILTER_BYTES} bytes, not {len(data)}")
        self._bits = int.from_bytes(data, "little")

    def __bytes__(self) -> bytes:
        return self._bits.to_bytes(FILTER_BYTES, "little")

    def insert(self, ip: bytes) -> None:
        self._bits |= _bits_of(ip)

    def __contains__(self, ip: bytes) -> bool:
        bits = _bits_of(ip)
        return self._bits & bits == bits

    def unite(self, data: bytes) -> None:
        """`data` is another node's filter."""
        self._bits |= int.from_bytes(data, "little")

    def estimate(self) -> float:
        if not self._bits:
            return 0.0
        zero_bits = max(1, FILTER_BITS - self._bits.bit_count())
        return min(log(zero_bits / FILTER_BITS) / (HASHES * log(1 - 1 / FILTER_BITS)), ESTIMATE_MAX)


def _bits_of(ip: bytes) -> int:
    digest = sha1(ip, usedforsecurity=False).digest()
    one, other = int.from_bytes(digest[:2], "little"), int.from_bytes(digest[2:4], "little")
    return 1 << one % FILTER_BITS | 1 << other % FILTER_BITS
