"""An in-memory cache of the fingerprints of all infohashes that were ever queued.

Nearly all sampled infohashes are known. Without this cache, each would cost a random disk read. A fingerprint takes 6
bytes of memory: its first 2 bytes select a part, the next 2 bits select a list of the part, and the list holds the
last 6 bytes. A part is read from the store when it is first needed.
A fingerprint that is found was queued. One that is not found is new, or was queued so recently that the store still
has it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from lycosa.dht.crawler.core.hash_records import FINGERPRINT_BYTES

PREFIX_BYTES = 2
REST_BYTES = FINGERPRINT_BYTES - PREFIX_BYTES
LISTS = 4
"""Number of lists in a part. With 30 million infohashes, a look-up searches 700 bytes."""
SHIFT = 6
MEMORY_MAX_BYTES = 600 << 20
"""Enough for 100 million infohashes. With more, the parts read first are dropped, and read again when needed."""


class KnownHashes:
    """See the module. `read` returns the stored fingerprints that start with a prefix."""

    def __init__(self, read: Callable[[bytes], Iterable[bytes]]) -> None:
        self._read = read
        self._parts: dict[bytes, list[bytearray]] = {}
        self._bytes = 0

    def unknown(self, infohashes: Iterable[bytes]) -> list[bytes]:
        """Return the infohashes that are not found, each once."""
        parts, missing = self._parts, []
        for infohash in dict.fromkeys(infohashes):
            key = blake2b(infohash, digest_size=FINGERPRINT_BYTES).digest()
            prefix, rest = key[:PREFIX_BYTES], key[PREFIX_BYTES:]
            found = (parts.get(prefix) or self._load(prefix))[rest[0] >> SHIFT]
            at = found.find(rest)
            while at >= 0 and at % REST_BYTES:  # a match across two entries
                at = found.find(rest, at + 1)
            if at < 0:
                missing.append(infohash)
        return missing

    def add(self, fingerprints: Iterable[int]) -> None:
        """Add queued fingerprints. Skips those of parts that are not loaded: reading the part will load them."""
        for fingerprint in fingerprints:
            key = fingerprint.to_bytes(FINGERPRINT_BYTES)
            part = self._parts.get(key[:PREFIX_BYTES])
            if part is not None:
                part[key[PREFIX_BYTES] >> SHIFT] += key[PREFIX_BYTES:]
                self._bytes += REST_BYTES

    def _load(self, prefix: bytes) -> list[bytearray]:
        rests: list[list[bytes]] = [[] for _ in range(LISTS)]
        for key in self._read(prefix):
            rests[key[PREFIX_BYTES] >> SHIFT].append(key[PREFIX_BYTES:])
        part = self._parts[prefix] = [bytearray(b"".join(each)) for each in rests]
        self._bytes += sum(map(len, part))
        while self._bytes > MEMORY_MAX_BYTES and len(self._parts) > 1:
            self._bytes -= sum(map(len, self._parts.pop(next(iter(self._parts)))))
        return part
