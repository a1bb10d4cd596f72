"""Which infohashes are known, with few disk reads."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from lycosa.dht.crawler.core import known_hashes
from lycosa.dht.crawler.core.hash_records import fingerprint
from lycosa.dht.crawler.core.known_hashes import KnownHashes

CHANCE = random.Random(19)
HASHES = [CHANCE.randbytes(20) for _ in range(2000)]


class Disk:
    """Stored fingerprints. Counts how often each prefix is read."""

    def __init__(self, infohashes: list[bytes]) -> None:
        self.keys = [fingerprint(each).to_bytes(8) for each in infohashes]
        self.reads: Counter[bytes] = Counter()

    def read(self, prefix: bytes) -> list[bytes]:
        self.reads[prefix] += 1
        return [key for key in self.keys if key.startswith(prefix)]


def test_stored_and_added_infohashes_are_known_and_the_disk_is_read_once() -> None:
    disk = Disk(HASHES[:1000])
    known = KnownHashes(disk.read)
    assert known.unknown(HASHES[:200]) == []
    assert known.unknown([*HASHES[1000:1100], HASHES[1000]]) == HASHES[1000:1100]
    known.add([fingerprint(each) for each in HASHES[1000:1100]])
    assert known.unknown(HASHES[:1200]) == HASHES[1100:1200]
    assert {*disk.reads.values()} == {1}


def test_bytes_that_span_two_adjacent_stored_fingerprints_are_no_match(monkeypatch: pytest.MonkeyPatch) -> None:
    infohash = HASHES[0]
    key = fingerprint(infohash).to_bytes(8)
    prefix, rest = key[:2], key[2:]
    stored = [prefix + rest[:1] + b"xx" + rest[:3], prefix + rest[3:] + b"yyy"]
    monkeypatch.setattr(known_hashes, "LISTS", 1)  # both are in one list
    monkeypatch.setattr(known_hashes, "SHIFT", 48)
    assert KnownHashes(lambda _: stored).unknown([infohash]) == [infohash]
    assert KnownHashes(lambda _: [*stored, key]).unknown([infohash]) == []


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_hashes, "MEMORY_MAX_BYTES", 600)
    disk = Disk(HASHES)
    known = KnownHashes(disk.read)
    assert known.unknown(HASHES) == []
    assert sum(map(len, filter(None, known._lists))) <= 600
    assert known.unknown(HASHES) == []


def test_an_infohash_that_is_added_again_takes_no_more_memory() -> None:
    known = KnownHashes(Disk(HASHES[:1000]).read)
    assert known.unknown(HASHES[:200]) == []
    before = sum(map(len, filter(None, known._lists)))
    known.add([fingerprint(each) for each in HASHES[:200]])
    assert sum(map(len, filter(None, known._lists))) == before
