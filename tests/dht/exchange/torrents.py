"""Torrent files, and an import of entries into a store in memory, for the tests of imports."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from lycosa.dht.core.bencode import Value, encode
from lycosa.dht.exchange.entries import Entry, TorrentSource
from lycosa.dht.exchange.importing import BatchResult, ImportCounts, Problem, RecordImporter, import_source
from lycosa.storage.core.torrent_record import RecordPolicy
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.rules.records import Inspect, rules_of

NOW = 1_795_000_000.0


def info_v1(name: bytes = b"film", **fields: Value) -> dict[bytes, Value]:
    """Return an info dict with two files."""
    files: list[Value] = [{b"length": 5, b"path": [b"a", b"b.txt"]}, {b"length": 6, b"path": [b"c.txt"]}]
    more = {key.encode(): value for key, value in fields.items()}
    return {b"name": name, b"piece length": 16_384, b"pieces": bytes(20), b"files": files, **more}


def info_v2(name: bytes = b"film") -> dict[bytes, Value]:
    tree: Value = {b"a.txt": {b"": {b"length": 7, b"pieces root": bytes(32)}}}
    return {b"name": name, b"piece length": 16_384, b"meta version": 2, b"file tree": tree}


def torrent_file(info: dict[bytes, Value], **fields: Value) -> bytes:
    return encode({b"info": info, **{key.replace("_", " ").encode(): value for key, value in fields.items()}})


class Imported:
    """A store, and the results that imports into it reported."""

    def __init__(self, policy: RecordPolicy | None = None, inspect: Inspect = Inspection) -> None:
        self.store: RecordStore = MemoryRecordStore(policy)
        self.rules = rules_of(inspect)
        self.counts = ImportCounts()
        self.problems: list[Problem] = []
        self.queued: list[bytes] = []
        self.done: list[int] = []
        self._importer = RecordImporter(self.store, policy or RecordPolicy(), lambda: self.rules, lambda: NOW)

    def run(self, source: TorrentSource) -> Imported:
        async def queue(entries: Sequence[Entry]) -> BatchResult:
            self.queued += [entry.data for entry in entries]
            return BatchResult(ImportCounts(queued=len(entries)), [])

        asyncio.run(import_source(source, self._importer.take, queue, 2, self._report))
        return self

    def names(self) -> list[str]:
        rows = asyncio.run(self.store.torrents(0, 10_000))
        return [row.record.name for row in rows]

    def _report(self, result: BatchResult, done: int) -> None:
        self.counts.add(result.counts)
        self.problems += result.problems
        self.done.append(done)
