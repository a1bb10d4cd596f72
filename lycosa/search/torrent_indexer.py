"""Keeps an index of torrents in sync with a record store: fills it once, then follows the store's changes.

A change is acknowledged after the commit that contains it. So a kill loses nothing: the next indexer indexes
unacknowledged changes again, which is harmless. Only one process indexes a store, into one index.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Self, TypeVar

from lycosa.core.errors import IndexFailure, IndexFull, IndexTaken, IndexUnavailable, LycosaError
from lycosa.search.core.analysis import analysis_of
from lycosa.search.parallel_build import Workers, fill_parts
from lycosa.search.ports import DividedIndex, Index, NewIndex
from lycosa.search.rebuilds import RebuildRequests
from lycosa.search.torrent_entry import torrent_entry
from lycosa.search.word_list import WordCounter
from lycosa.storage.core.torrent_record import Change
from lycosa.storage.ports import RecordStore

Result = TypeVar("Result")

BATCH = 2_000
"""Number of rows read at once."""
COMMIT_ROWS = 100_000
"""Number of rows between two commits of the first fill."""
POLL_S = 1.0
"""Pause if the store has no changes."""
RETRY_MIN_S, RETRY_MAX_S = 1.0, 15.0
"""Pauses before the index is opened again after a failure: each is twice as long as the one before."""
PASSING = (IndexUnavailable, IndexFull)
"""Failures that may end without a change of the command."""
SCANNED = "torrents"
"""Name of a position in the index: the id of the last row that the first fill has indexed, and COMPLETE afterwards."""
COMPLETE = 2**62
"""Value of SCANNED in a filled index."""
LISTED = "listed"
"""Name of another position: the largest id in a build by several processes. It becomes 0 once `acknowledge_until` has
acknowledged the changes up to this id."""


class TorrentIndexer:
    """Follows a store. It closes the index and the word list; the caller closes the store."""

    def __init__(
        self,
        index: Index,
        store: RecordStore,
        words: WordCounter | None = None,
        requests: RebuildRequests | None = None,
        workers: Workers | None = None,
    ) -> None:
        self._index, self._store, self._words, self._requests = index, store, words, requests
        self._workers = workers
        self._executor = ThreadPoolExecutor(1, "indexer")  # one thread: a call waits until a cancelled call ends
        self.indexed = 0
        """Number of rows added, replaced or removed."""

    async def catch_up(self) -> int:
        """Index all changes of the store. Return the number of rows changed."""
        before = self.indexed
        await self._acknowledge_listed()  # a kill may have prevented it after a build
        if self._index.outdated:
            await self.rebuild()
        elif self._requests and self._requests.is_wanted():
            async with self._requests.noted(await self._store.count(), lambda: self.indexed - before):
                await self.rebuild()
        await self._fill()
        while await self._follow():
            pass
        return self.indexed - before

    async def rebuild(self) -> None:
        """Fill a new index, then replace the old one with it. Until then the old one is searched and kept current."""
        rebuilt, last_id = await self._call(self._index.rebuild), 0
        if self._words:
            await self._call(self._words.restart)
        try:
            try:
                if isinstance(rebuilt, DividedIndex) and self._workers and await self._is_large():
                    last_id = await self._fill_in_processes(rebuilt, self._workers)
                else:
                    await self._fill_new(rebuilt)
            except LycosaError:
                await self._call(rebuilt.discard)  # the device may be full
                raise
            await self._call(self._index.adopt, rebuilt)
            if self._words:
                await self._call(self._words.adopt)
            await self._call(self._index.commit, {SCANNED: COMPLETE, LISTED: last_id})
            await self._acknowledge_listed()
        except LycosaError:
            if self._words:
                await self._call(self._words.abandon)
            raise

    async def close(self) -> None:
        """Wait for a running call, then close the index. The next indexer indexes uncommitted changes again."""
        try:
            await self._call(self._index.close)
        finally:
            if self._words:
                await self._call(self._words.close)
            self._executor.shutdown()

    async def _call(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work, *arguments)

    async def _fill_new(self, rebuilt: NewIndex) -> None:
        after_id, analysis = 0, self._index.schema.analysis
        while batch := await self._store.scan(after_id, BATCH):
            await self._call(_add, rebuilt, analysis, self._words, batch, True)
            after_id = batch[-1].id
            self.indexed += len(batch)
            # A row that changes after it was scanned must be replaced in the new index, too.
            await self._follow(rebuilt, after_id)

    async def _fill_in_processes(self, rebuilt: DividedIndex, workers: Workers) -> int:
        """Fill the new index in several processes. Return the largest id in it.

        Meanwhile the old index, if it is complete, follows the store. Then the new index gets the same changes.
        """
        last_id, before = await self._store.mark_listed(), self.indexed
        if self._words:
            # The processes count the words of torrents up to `last_id`, so `_follow` must not count them again.
            await self._call(self._words.add_counts, Counter(), last_id)
        changed = set[int]()
        follows = (await self._call(self._index.positions)).get(SCANNED, 0) == COMPLETE

        def report(read: int) -> None:
            self.indexed = before + read

        filling = asyncio.ensure_future(fill_parts(rebuilt, workers, last_id, report))
        try:
            while not filling.done():
                await asyncio.wait([filling], timeout=POLL_S)
                while follows and (changes := await self._follow()):
                    changed.update(change.id for change in changes)
            filled = filling.result()
        finally:
            filling.cancel()
            await asyncio.wait([filling])
        self.indexed = before + filled.torrents
        analysis = self._index.schema.analysis
        for number in sorted(changed):
            found = await self._store.searched(number - 1, number, 1)
            await self._call(_apply, rebuilt, analysis, None, [Change(number, 0, found[0] if found else None)])
        if self._words:
            await self._call(self._words.add_counts, filled.words, last_id)
        return last_id

    async def _acknowledge_listed(self) -> None:
        if last_id := (await self._call(self._index.positions)).get(LISTED, 0):
            await self._store.acknowledge_until(last_id)
            await self._call(self._index.commit, {LISTED: 0})

    async def _is_large(self) -> bool:
        return self._workers is not None and await self._store.count() >= self._workers.torrents_min

    async def _fill(self) -> None:
        after_id = (await self._call(self._index.positions)).get(SCANNED, 0)
        if not after_id and await self._is_large():
            await self.rebuild()
            return
        scanned: list[Change] = []
        # In an empty index all rows are new. A partly filled one may have rows beyond its position.
        is_new = not await self._call(self._index.count)
        rows = 0
        while after_id != COMPLETE:
            batch = await self._store.scan(after_id, BATCH)
            await self._call(_add, self._index, self._index.analysis, self._words, batch, is_new)
            scanned += [each._replace(torrent=None) for each in batch if each.token]
            after_id = batch[-1].id if batch else COMPLETE
            rows += len(batch)
            self.indexed += len(batch)
            if not batch or rows >= COMMIT_ROWS:
                await self._call(self._commit, {SCANNED: after_id})
                await self._store.acknowledge(scanned)
                scanned, rows = [], 0

    async def _follow(self, rebuilt: NewIndex | None = None, scanned_id: int = 0) -> list[Change]:
        """Index and commit one batch of changes. `rebuilt` also gets the changes of rows up to `scanned_id`."""
        changes = await self._store.changes(BATCH)
        if changes:
            words = self._words if rebuilt is None else None
            await self._call(_apply, self._index, self._index.analysis, words, changes)
            if rebuilt is not None:
                scanned = [change for change in changes if change.id <= scanned_id]
                await self._call(_apply, rebuilt, self._index.schema.analysis, None, scanned)
            await self._call(self._commit, {})
            await self._store.acknowledge(changes)
            self.indexed += len(changes)
        return changes

    def _commit(self, positions: Mapping[str, int]) -> None:
        self._index.commit(positions)
        if self._words:
            self._words.commit()


class IndexFollower:
    """Keeps an index up to date with a store. If the index fails, reopens it until it works, then resumes indexing.

    `opening` opens the indexer of the store. `say` gets a message when the index fails in a new way, and when it works
    again.
    """

    def __init__(
        self,
        store: RecordStore,
        opening: Callable[[], AbstractAsyncContextManager[TorrentIndexer]],
        say: Callable[[str], None],
    ) -> None:
        self._store, self._opening, self._say = store, opening, say
        self._indexer: TorrentIndexer | None = None
        self._opened = AsyncExitStack()
        self._indexed = 0
        self._failures = set[object]()
        self._is_taken = False

    @property
    def indexed(self) -> int:
        """Number of rows added, replaced or removed."""
        return self._indexed + (self._indexer.indexed if self._indexer else 0)

    async def __aenter__(self) -> Self:
        """Open the index. Raises a failure that cannot end by itself."""
        try:
            await self._open()
        except PASSING as failure:
            self._report(failure)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def run(self) -> None:
        """Follow the store until cancelled. Raises `IndexTaken`, and the errors of the store."""
        while True:
            if not await self.catch_up():
                await asyncio.sleep(POLL_S)

    async def catch_up(self) -> int:
        """Index all changes of the store, however long the index fails. Return the number of rows changed."""
        before, pause_s = self.indexed, RETRY_MIN_S
        while True:
            try:
                await (await self._open()).catch_up()
            except IndexTaken:
                self._is_taken = True
                await self._close()
                raise
            except IndexFailure as failure:
                self._report(failure)
            else:
                if self._failures:
                    self._say("the index works again, and has all torrents")
                    self._failures.clear()
                return self.indexed - before
            await self._close()
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)

    async def finish(self) -> None:
        """Index the last changes, if the index is open. Say so if the index lacks torrents."""
        if self._indexer is not None:
            try:
                await self._indexer.catch_up()
            except IndexFailure as failure:
                self._say(str(failure))
        await self.report_missing()

    async def report_missing(self) -> None:
        """Say so if the index lacks torrents because it failed."""
        failed = self._indexer is None or self._failures
        if failed and not self._is_taken and await self._store.changes(1):
            self._say("the index lacks torrents: `lycosa index` adds them")

    async def _open(self) -> TorrentIndexer:
        if self._indexer is None:
            self._indexer = await self._opened.enter_async_context(self._opening())
        return self._indexer

    async def _close(self) -> None:
        self._indexed, self._indexer = self.indexed, None
        await self._opened.aclose()

    def _report(self, failure: IndexFailure) -> None:
        # The texts of a passing failure differ by the call that failed.
        kind = type(failure) if isinstance(failure, PASSING) else str(failure)
        if kind not in self._failures:
            self._failures.add(kind)
            self._say(f"{failure}; trying again, at least every {RETRY_MAX_S:.0f} s")


def _apply(index: NewIndex, analysis: tuple[str, ...], words: WordCounter | None, changes: Sequence[Change]) -> None:
    _add(index, analysis, words, changes, False)
    index.remove([change.id for change in changes if change.torrent is None])


def _add(
    index: NewIndex, analysis: tuple[str, ...], words: WordCounter | None, changes: Sequence[Change], is_new: bool
) -> None:
    steps = analysis_of(analysis)
    torrents = [change.torrent for change in changes if change.torrent is not None]
    entries = [torrent_entry(torrent, names_only=steps.names_only) for torrent in torrents]
    if words:
        words.add(entries)
    index.add(steps.entries(entries), new=is_new)
