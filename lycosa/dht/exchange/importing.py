"""Imports torrents into a record store.

    source -> batches of entries -> parsed, checked, stored      several batches at once, in worker processes
                                 -> infohashes into the queue    a crawl fetches their metadata

No torrent is stored twice, so an interrupted import can simply be repeated.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Generator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple, Protocol

from lycosa.core.errors import BadMagnet, LycosaError, StateError
from lycosa.dht.core.magnet import parse_magnet
from lycosa.dht.core.torrent_file import read_torrent_file
from lycosa.dht.crawler.core.hash_records import SAMPLED
from lycosa.dht.crawler.core.torrent_records import to_torrent_record
from lycosa.dht.crawler.store import inspect_stored
from lycosa.dht.exchange.entries import Entry, EntryKind, TorrentSource
from lycosa.infra.own_thread import OwnThread
from lycosa.storage.core.torrent_line import FilesUnknown, ImportedTorrent, magnet_link, parse_line, plausible_date
from lycosa.storage.core.torrent_record import RecordPolicy, Standing, TorrentRecord, key_of
from lycosa.storage.core.torrents.inspection import Inspector
from lycosa.storage.ports import RecordStore

BATCH_ROWS = 500
BATCH_BYTES = 4 << 20
"""A batch ends after BATCH_ROWS entries, or when its entries reach this many bytes."""
PRIVATE, DENIED, EVICTED = "private", "denied", "evicted"
NO_QUEUE = "needs the network: give --state, then start a crawl"


@dataclass(slots=True)
class ImportCounts:
    """Numbers of entries by outcome. `refused` counts by reason."""

    new: int = 0
    known: int = 0
    queued: int = 0
    bad: int = 0
    refused: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.new + self.known + self.queued + self.bad + self.refused.total()

    def add(self, other: ImportCounts) -> None:
        self.new += other.new
        self.known += other.known
        self.queued += other.queued
        self.bad += other.bad
        self.refused += other.refused


class Problem(NamedTuple):
    """An entry that could not be read."""

    where: str
    reason: str


class BatchResult(NamedTuple):
    """`unlisted` are the torrents whose files are not known, as infohashes for the queue."""

    counts: ImportCounts
    problems: list[Problem]
    unlisted: Sequence[Entry] = ()


Take = Callable[[Sequence[Entry]], Awaitable[BatchResult]]


class RecordImporter:
    """Stores batches of lines and torrent files."""

    def __init__(
        self,
        store: RecordStore,
        policy: RecordPolicy,
        current_rules: Callable[[], Inspector],
        now: Callable[[], float],
    ) -> None:
        self._store, self._policy, self._current_rules, self._now = store, policy, current_rules, now

    async def take(self, entries: Sequence[Entry]) -> BatchResult:
        """Raises `StateError`; the batch can then be repeated."""
        counts, problems, now = ImportCounts(), list[Problem](), self._now()
        read: list[tuple[Entry, ImportedTorrent]] = []
        unlisted: list[Entry] = []
        for entry in entries:
            try:
                torrent = read_entry(entry, int(now))
            except FilesUnknown as unknown:
                if self._policy.refuses(unknown.record):
                    counts.refused[PRIVATE] += 1
                else:
                    link = magnet_link(replace(unknown.record, name=""))
                    unlisted.append(entry._replace(kind=EntryKind.INFOHASH, data=link.encode()))
                continue
            except LycosaError as error:
                problems.append(Problem(entry.where, str(error)))
                continue
            if self._policy.refuses(torrent.record):
                counts.refused[PRIVATE] += 1
            else:
                read.append((entry, torrent))
        counts.bad = len(problems)
        standing = await self._store.standing([key for _, each in read for key in each.record.keys], now)
        rules = self._current_rules()
        new = await self._new_records(read, standing, rules, counts)
        stored = await self._store.put(new, now)
        # If the rules changed, they may have been applied to the store before `put` ended.
        if (changed := self._current_rules()) is not rules:
            await inspect_stored(self._store, changed, [record.keys[0] for record in new])
        counts.new += stored.new
        counts.known += stored.known
        if stored.refused:  # denied by another process after the look-up
            counts.refused[DENIED] += stored.refused
        if popularities := [each.popularity for _, each in read if each.popularity is not None]:
            await self._store.set_popularity(popularities)  # the store ignores unknown torrents
        return BatchResult(counts, problems, unlisted)

    async def _new_records(
        self,
        read: list[tuple[Entry, ImportedTorrent]],
        standing: dict[bytes, Standing],
        rules: Inspector,
        counts: ImportCounts,
    ) -> list[TorrentRecord]:
        """Return the records to store: new ones, and those that may complete a stored one. Count the others.

        Deny the infohashes of refused torrent files.
        """
        new: list[TorrentRecord] = []
        denied: dict[str, list[tuple[bytes, ...]]] = defaultdict(list)
        for entry, torrent in read:
            found = {standing[key] for key in torrent.record.keys if key in standing}
            if refusal := _refusal(found):
                counts.refused[refusal] += 1
            elif found and not _completes(torrent.record):
                counts.known += 1
            else:
                record, reason = rules.inspect(torrent.record)
                if not reason:
                    new.append(record)
                    continue
                counts.refused[reason] += 1
                if entry.kind is EntryKind.TORRENT:  # the name in a line may be false, so it does not deny an infohash
                    denied[reason].append(record.keys)
        for reason, torrents in denied.items():
            await self._store.deny(chain.from_iterable(torrents), reason=reason, hybrids=torrents)
        return new


class InfohashQueue(Protocol):
    """The queue of a crawl."""

    async def push(self, infohashes: Collection[bytes], priority: int) -> int:
        """Return the number of new infohashes."""

    async def save(self) -> None:
        """Make the queued infohashes durable."""


class QueueImporter:
    """Queues infohashes for a crawl, except those that are stored, denied or evicted."""

    def __init__(self, store: RecordStore, queue: InfohashQueue | None, now: Callable[[], float]) -> None:
        self._store, self._queue, self._now = store, queue, now

    async def take(self, entries: Sequence[Entry]) -> BatchResult:
        counts, problems, swarms = ImportCounts(), list[Problem](), list[tuple[bytes, ...]]()
        for entry in entries:
            try:
                swarms.append(tuple(map(key_of, parse_magnet(_ascii(entry.data)).infohashes)))
            except BadMagnet as error:
                problems.append(Problem(entry.where, str(error)))
        counts.bad = len(problems)
        standing = await self._store.standing([each for swarm in swarms for each in swarm], self._now())
        wanted: list[tuple[bytes, ...]] = []
        for swarm in swarms:
            found = {standing[each] for each in swarm if each in standing}
            if not found:
                wanted.append(swarm)
            elif refusal := _refusal(found):
                counts.refused[refusal] += 1
            else:
                counts.known += 1
        await self._push(wanted, counts)
        return BatchResult(counts, problems)

    async def _push(self, swarms: list[tuple[bytes, ...]], counts: ImportCounts) -> None:
        if self._queue is None:
            counts.refused[NO_QUEUE] += len(swarms)
            return
        queued = await self._queue.push([swarm[0] for swarm in swarms if len(swarm) == 1], SAMPLED)
        for hybrid in (swarm for swarm in swarms if len(swarm) > 1):
            queued += bool(await self._queue.push(hybrid, SAMPLED))
        counts.queued += queued
        counts.known += len(swarms) - queued
        await self._queue.save()


async def import_source(
    source: TorrentSource,
    take_records: Take,
    take_infohashes: Take,
    concurrency: int,
    report: Callable[[BatchResult, int], None],
) -> None:
    """Import a source, with `concurrency` batches at a time. `report` gets each result, and the progress in the source.

    Raises `UsageError` if the format is not the one that `find_source` recognised, `StateError` if the store fails.
    If the rest of a source cannot be read, that counts as one problem.
    """
    running: deque[tuple[asyncio.Task[BatchResult], int]] = deque()

    async def finish_first() -> None:
        task, done = running.popleft()
        result = await task
        report(result, done)
        if result.unlisted:
            report(await take_infohashes(result.unlisted), done)

    try:
        async with aclosing(_batches(source)) as batches:
            async for batch in batches:
                infohashes = [entry for entry in batch if entry.kind is EntryKind.INFOHASH]
                records = [entry for entry in batch if entry.kind is not EntryKind.INFOHASH]
                if records:
                    running.append((asyncio.create_task(_run(take_records, records)), batch[-1].done))
                if infohashes:
                    report(await take_infohashes(infohashes), batch[-1].done)
                while len(running) >= concurrency:
                    await finish_first()
        while running:
            await finish_first()
    finally:
        tasks = [task for task, _ in running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def read_entry(entry: Entry, now: int) -> ImportedTorrent:
    """Parse an entry. Raises `LycosaError` if it cannot be read."""
    if entry.kind is EntryKind.LINE:
        return parse_line(entry.data, now)
    if entry.kind is EntryKind.TORRENT:
        return ImportedTorrent(_record_of_torrent_file(entry.data, now))
    raise LycosaError(entry.data.decode(errors="replace"))


def _record_of_torrent_file(data: bytes, now: int) -> TorrentRecord:
    """Trackers and most other fields are left out."""
    torrent = read_torrent_file(data)
    fields = dict(torrent.fields)
    comment = fields.get(b"comment.utf-8") or fields.get(b"comment")
    encoding = fields.get(b"encoding")
    return replace(
        to_torrent_record(
            torrent.info, now, encoding.decode("ascii", "replace") if isinstance(encoding, bytes) else ""
        ),
        comment=comment.decode(errors="replace") if isinstance(comment, bytes) else "",
        created=plausible_date(fields.get(b"creation date")),
    )


def _refusal(found: set[Standing]) -> str:
    return DENIED if Standing.DENIED in found else EVICTED if Standing.EVICTED in found else ""


def _completes(record: TorrentRecord) -> bool:
    """Whether a record may have data that the stored one lacks."""
    return bool(record.comment) or record.created is not None or len(record.keys) > 1


def _ascii(data: bytes) -> str:
    return data.decode("ascii", "replace")


async def _run(take: Take, entries: Sequence[Entry]) -> BatchResult:
    return await take(entries)


async def _batches(source: TorrentSource) -> AsyncGenerator[list[Entry]]:
    """Entries are read in a thread, because a database or a pipe may block for ever."""
    batches, thread = _cut(source), OwnThread("import")
    try:
        while batch := await thread.call(lambda: next(batches, None)):
            yield batch
    finally:
        if not thread.is_busy:
            batches.close()


def _cut(source: TorrentSource) -> Generator[list[Entry]]:
    batch: list[Entry] = []
    size = done = 0
    where = "the source"
    try:
        for entry in source.entries():
            where = "the rest"
            batch.append(entry)
            size += len(entry.data)
            done = entry.done
            if len(batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield batch
                batch, size = [], 0
    except StateError as error:
        batch.append(Entry(where, EntryKind.BAD, str(error).encode(), done))
    if batch:
        yield batch
