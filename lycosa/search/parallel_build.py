"""Fills a new index of torrents with several processes. Each writes its own part of the index.

A process takes a slice (a range of ids), reads and analyzes its torrents, and then takes the next slice. So all
processes finish at about the same time. They end with their parent process, even if that is killed.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection
from multiprocessing.sharedctypes import Synchronized
from typing import NamedTuple

from lycosa.core.errors import IndexFailure, LycosaError
from lycosa.infra.child_process import end_with_parent
from lycosa.search.core.analysis import analysis_of
from lycosa.search.ports import DividedIndex
from lycosa.search.torrent_entry import torrent_entry
from lycosa.search.word_list import sampled_words
from lycosa.storage.ports import RecordStore

SLICE_IDS = 4_000
WORDS_KEPT = 1_000_000
"""Maximum number of different words that a process counts; above it, the rarer half is forgotten."""
OpenStore = Callable[[], AbstractAsyncContextManager[RecordStore]]


class Filled(NamedTuple):
    """The number of torrents added, and the frequencies of their words for the word list."""

    torrents: int
    words: Counter[str]


class Workers(NamedTuple):
    """The processes that fill a large index. Each process calls `open_store`, which must be picklable."""

    open_store: OpenStore
    processes: int
    torrents_min: int
    """With fewer torrents, no processes are started."""
    slice_ids: int = SLICE_IDS


async def fill_parts(index: DividedIndex, workers: Workers, last_id: int, report: Callable[[int], None]) -> Filled:
    """Fill the index with the torrents up to `last_id`. Raises `LycosaError`.

    `report` gets the number of ids that the processes have taken so far, about once a second.
    """
    context = multiprocessing.get_context("spawn")
    taken = context.Value("q", 0)
    started = []
    try:
        for number in range(workers.processes):
            ours, theirs = context.Pipe(duplex=False)
            arguments = (index, number, workers, last_id, taken, theirs)
            process = context.Process(target=_fill_part, args=arguments, name=f"index-{number}")
            await asyncio.to_thread(process.start)
            theirs.close()
            started.append((process, ours))
        results = asyncio.gather(*(asyncio.to_thread(_result, ours) for _, ours in started))
        while not (await asyncio.wait([results], timeout=1.0))[0]:
            report(min(taken.value, last_id))
        parts = results.result()  # raises the first failure; the other processes are not awaited
    finally:
        for process, _ in started:
            process.terminate()
            process.join()
    await asyncio.to_thread(index.join_parts)
    return Filled(sum(part.torrents for part in parts), sum((part.words for part in parts), Counter()))


def _result(connection: Connection) -> Filled:
    """Receive the result of a process. Raise `IndexFailure` if it failed."""
    try:
        result: Filled | str = connection.recv()
    except EOFError:
        result = "a process that fills the index was killed: run the same command again"
    if isinstance(result, str):
        raise IndexFailure(result)
    return result


def _fill_part(
    index: DividedIndex, number: int, workers: Workers, last_id: int, taken: Synchronized[int], results: Connection
) -> None:
    end_with_parent()
    gc.disable()  # for speed: the many entries have no cycles
    try:
        results.send(asyncio.run(_fill(index, number, workers, last_id, taken)))
    except LycosaError as error:
        results.send(str(error))
    except Exception as error:  # noqa: BLE001  the indexer reports it
        traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".split("\n", 1)[0]
        results.send(f"a process that fills the index failed: {reason}")


async def _fill(index: DividedIndex, number: int, workers: Workers, last_id: int, taken: Synchronized[int]) -> Filled:
    rows, counts = 0, Counter[str]()
    part = index.open_part(number, last_id // workers.processes)
    analysis = analysis_of(index.schema.analysis)
    async with workers.open_store() as store:
        while True:
            with taken.get_lock():
                start = taken.value
                taken.value = start + workers.slice_ids
            if start >= last_id:
                break
            torrents = await store.searched(start, min(start + workers.slice_ids, last_id), workers.slice_ids)
            entries = [torrent_entry(torrent, names_only=analysis.names_only) for torrent in torrents]
            rows += len(entries)
            counts.update(sampled_words(entries, index.schema.listed))
            if len(counts) > WORDS_KEPT:
                counts = Counter(dict(counts.most_common(WORDS_KEPT // 2)))
            part.add(analysis.entries(entries))
    part.finish()
    return Filled(rows, counts)
