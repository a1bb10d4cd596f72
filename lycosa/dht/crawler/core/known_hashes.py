"""An in-memory cache of the fingerprints of all infohashes that were ever queued.

Nearly all sampled infohashes are known. Without this cache, each would cost a random disk read. The first 20 bits of a
fingerprint select a list, which holds the last 6 bytes of the fingerprint. A list is one `bytes` object, so a look-up
has few cache misses. The 16 lists of the fingerprints that share the first 2 bytes form a part. A part is read from the
frontier when it is first needed.

A fingerprint that is not found is new, or was queued so recently that it was not on disk yet when its part was read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from lycosa.dht.crawler.core.hash_records import EMPTY_DIGEST, FINGERPRINT_BYTES

PREFIX_BYTES = 2
REST_BYTES = FINGERPRINT_BYTES - PREFIX_BYTES
PARTS = 1 << 8 * PREFIX_BYTES
LISTS = 16
"""Lists in a part. With 30 million infohashes, a look-up searches 170 bytes."""
SHIFT = 8 * FINGERPRINT_BYTES - (PARTS * LISTS).bit_length() + 1
"""A fingerprint shifted right by this number of bits is the number of its list."""
MEMORY_MAX_BYTES = 600 << 20
"""Enough for 100 million infohashes. With more, the parts read first are dropped, and read again when needed."""


class KnownHashes:
    """The cache. `read` returns the fingerprints on disk that start with a prefix."""

    def __init__(self, read: Callable[[bytes], Iterable[bytes]]) -> None:
        self._read = read
        self._lists: list[bytes | None] = [None] * (PARTS * LISTS)
        self._parts: deque[int] = deque()
        """The parts in memory, in the order in which they were read."""
        self._bytes = 0

    def unknown(self, infohashes: Iterable[bytes]) -> list[bytes]:
        lists, missing, new_digest = self._lists, [], EMPTY_DIGEST.copy
        for infohash in dict.fromkeys(infohashes):
            digest = new_digest()
            digest.update(infohash)
            key = digest.digest()
            number = int.from_bytes(key) >> SHIFT
            found = lists[number]
            if found is None:
                found = self._load(number)
            if not _has(found, key[PREFIX_BYTES:]):
                missing.append(infohash)
        return missing

    def add(self, fingerprints: Iterable[int]) -> None:
        """Fingerprints of a part that is not in memory are skipped: they are read with the part."""
        for fingerprint in fingerprints:
            number = fingerprint >> SHIFT
            known = self._lists[number]
            rest = fingerprint.to_bytes(FINGERPRINT_BYTES)[PREFIX_BYTES:]
            if known is not None and not _has(known, rest):
                self._lists[number] = known + rest
                self._bytes += REST_BYTES

    def _load(self, number: int) -> bytes:
        part = number // LISTS
        first = part * LISTS
        rests: list[list[bytes]] = [[] for _ in range(LISTS)]
        for key in self._read(part.to_bytes(PREFIX_BYTES)):
            rests[(int.from_bytes(key) >> SHIFT) - first].append(key[PREFIX_BYTES:])
        read = [b"".join(each) for each in rests]
        self._lists[first : first + LISTS] = read
        self._parts.append(part)
        self._bytes += sum(map(len, read))
        while self._bytes > MEMORY_MAX_BYTES and len(self._parts) > 1:
            self._drop(self._parts.popleft() * LISTS)
        return read[number - first]

    def _drop(self, first: int) -> None:
        self._bytes -= sum(len(each or b"") for each in self._lists[first : first + LISTS])
        self._lists[first : first + LISTS] = [None] * LISTS


def _has(entries: bytes, rest: bytes) -> bool:
    at = entries.find(rest)
    while at >= 0 and at % REST_BYTES:  # a match across two entries
        at = entries.find(rest, at + 1)
    return at >= 0
