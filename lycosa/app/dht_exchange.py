"""Import torrents into a store: the first batches in this process, further ones in worker processes.

Parsing a record and packing it for the store takes most of the time. So each worker opens the store itself, and the
workers take turns to write. Infohashes without metadata go into the queue of the state folder.
"""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

from lycosa.app.dht_state import QUEUE, RecordsLocation, open_hash_frontier, open_records
from lycosa.app.frontier.operations import open_state
from lycosa.core.errors import StateLocked, StorageError
from lycosa.dht.crawler.queue import CrawlQueue, HashQueue
from lycosa.dht.exchange.entries import Entry, TorrentSource
from lycosa.dht.exchange.exporting import ExportFormat, export_torrents
from lycosa.dht.exchange.importing import (
    BatchResult,
    ImportCounts,
    InfohashQueue,
    QueueImporter,
    RecordImporter,
    import_source,
)
from lycosa.dht.exchange.sources import find_source
from lycosa.infra.child_process import end_with_parent
from lycosa.infra.clock import Clock, chance
from lycosa.infra.file_locks import shared_lock
from lycosa.storage.core.torrent_record import RecordPolicy
from lycosa.storage.ports import RecordStore
from lycosa.storage.rules.installed import InstalledRules

__all__ = [
    "ExportFormat",
    "ImportCounts",
    "TorrentImport",
    "export_torrents",
    "find_source",
    "open_import",
    "open_records",
]

LOCAL_BATCHES = 2
"""Number of batches that an import handles before it starts worker processes, which takes half a second."""


class TorrentImport:
    """An import into an open store. Use `open_import`."""

    def __init__(
        self,
        store: RecordStore,
        location: RecordsLocation,
        policy: RecordPolicy,
        rules: Sequence[Path],
        processes: int,
        stack: AsyncExitStack,
    ) -> None:
        self._store, self._location, self._processes, self._stack = store, location, processes, stack
        self._clock = Clock()
        self._here = _importer(store, location, policy, rules)
        self._workers = ImportWorkers(location, policy, rules, processes)
        self._queue: QueueImporter | None = None
        self._batches = 0

    async def run(self, source: TorrentSource, report: Callable[[BatchResult, int], None]) -> None:
        await import_source(source, self._take_records, self._take_infohashes, self._processes + 1, report)

    async def close(self) -> None:
        """Wait for the running batches, and end the workers."""
        await asyncio.to_thread(self._workers.close)

    async def _take_records(self, entries: Sequence[Entry]) -> BatchResult:
        self._batches += 1
        if self._processes == 1 or self._batches <= LOCAL_BATCHES:
            return await self._here.take(entries)
        return await self._workers.take(entries)

    async def _take_infohashes(self, entries: Sequence[Entry]) -> BatchResult:
        if self._queue is None:
            self._queue = QueueImporter(self._store, await self._open_queue(), self._clock.now)
        return await self._queue.take(entries)

    async def _open_queue(self) -> InfohashQueue | None:
        """Open the queue directly, or through a running crawl that has locked it."""
        if self._location.state is None:
            return None
        state = Path(self._location.state)
        try:
            frontier = await self._stack.enter_async_context(open_hash_frontier(state, self._clock.now()))
        except StateLocked:
            running = await self._stack.enter_async_context(open_state(state / QUEUE))
            return CrawlQueue(running.operations, self._clock.now)
        return HashQueue(frontier, self._clock.now, chance)


class ImportWorkers:
    """Worker processes. They start with the first batch, and end with this process, even if it is killed."""

    def __init__(self, location: RecordsLocation, policy: RecordPolicy, rules: Sequence[Path], processes: int) -> None:
        context, arguments = multiprocessing.get_context("spawn"), (location, policy, rules)
        self._make = partial(ProcessPoolExecutor, processes, context, _start_worker, arguments)
        self._pool: ProcessPoolExecutor | None = None

    async def take(self, entries: Sequence[Entry]) -> BatchResult:
        self._pool = self._pool or self._make()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, _take_in_worker, list(entries))
        except BrokenProcessPool:
            raise StorageError("a worker process of the import died; run the same command again") from None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)


@asynccontextmanager
async def open_import(
    location: RecordsLocation, rules: Sequence[Path] = (), *, store_private: bool, processes: int
) -> AsyncIterator[TorrentImport]:
    """Open the store, or create it. `rules` are rule files, in addition to those of the state folder.

    Raises `UsageError`, `StateError`.
    """
    policy = RecordPolicy(store_private=store_private)
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_records(location, policy, create=True))
        if location.state is not None:
            stack.enter_context(shared_lock(Path(location.state)))  # shows `scan_installed` that an import is running
        torrents = TorrentImport(store, location, policy, rules, processes, stack)
        stack.push_async_callback(torrents.close)
        yield torrents


def _importer(
    store: RecordStore, location: RecordsLocation, policy: RecordPolicy, rules: Sequence[Path]
) -> RecordImporter:
    clock = Clock()
    installed = InstalledRules(Path(location.state) if location.state else None, rules, clock.now)
    return RecordImporter(store, policy, installed.current, clock.now)


class ImportProcess:
    """The state of a worker process."""

    def __init__(self, location: RecordsLocation, policy: RecordPolicy, rules: Sequence[Path]) -> None:
        self._location, self._policy, self._rules = location, policy, rules
        self._runner = asyncio.Runner()
        self._stack = AsyncExitStack()
        self._importer: RecordImporter | None = None

    def take(self, entries: Sequence[Entry]) -> BatchResult:
        return self._runner.run(self._take(entries))

    async def _take(self, entries: Sequence[Entry]) -> BatchResult:
        if self._importer is None:
            store = await self._stack.enter_async_context(open_records(self._location, self._policy, create=True))
            self._importer = _importer(store, self._location, self._policy, self._rules)
        return await self._importer.take(entries)


_workers: list[ImportProcess] = []
"""In a worker process: its only `ImportProcess`."""


def _start_worker(location: RecordsLocation, policy: RecordPolicy, rules: Sequence[Path]) -> None:
    end_with_parent()
    _workers.append(ImportProcess(location, policy, rules))


def _take_in_worker(entries: Sequence[Entry]) -> BatchResult:
    return _workers[0].take(entries)
