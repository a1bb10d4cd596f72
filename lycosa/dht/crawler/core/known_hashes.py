"""The fingerprints of all infohashes that were ever queued, in memory, in front of the store.

Nearly all infohashes that are sampled are known, and each would be a random read of the disk. Here a fingerprint takes
6 bytes: its first 2 select a part, which is read from the store when it is first needed, and the next 2 bits a list in
it, which holds the other 6 bytes of each.
A fingerprint that is found was queued. One that is not found was not, or so lately that the store has it in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from hashlib import blake2b

from lycosa.dht.crawler.core.hash_records import FINGERPRINT_BYTES

PREFIX_BYTES = 2
REST_BYTES = FINGERPRINT_BYTES - PREFIX_BYTES
LISTS = 4
"""Lists of a part. With 30 million infohashes, a look-up searches 700 bytes."""
SHIFT = 6
MEMORY_MAX_BYTES = 600 << 20
"""100 million infohashes. Of more, the parts that were read first are dropped, and read again when they are needed."""


class KnownHashes:
    """See the module. `read` returns the stored fingerprints that start with a prefix."""

    def __init__(self, read: Callable[[bytes], Iterable[bytes]]) -> None:
        self._read = read
        self._parts: dict[bytes, list[bytearray]] = {}
        self._bytes = 0

    def unknown(self, infohashes: Iterable[bytes]) -> list[bytes]:
        """Return those that are not found, each once."""
        parts, missing = self._parts, []
        for infohash in dict.fromkeys(infohashes):
            key = blake2b(infohash, digest_size=FINGERPRINT_BYTES).digest()
            prefix, rest = key[:PREFIX_BYTES], key[PREFIX_BYTES:]
            found = (parts.get(prefix) or self._load(prefix))[rest[0] >> SHIFT]
            at = found.find(rest)
            while at >= 0 and at % REST_BYTES:  # the end of one and the beginning of the next
                at = found.find(rest, at + 1)
            if at < 0:
                missing.append(infohash)
        return missing

    def add(self, fingerprints: Iterable[int]) -> None:
        """Take fingerprints that were queued. Those of a part that was not read yet are read with it."""
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
