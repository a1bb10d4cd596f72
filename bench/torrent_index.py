#!/usr/bin/env python3
"""How long it takes to index the torrents of a store, beside Sphinx: bench/torrent_index.py [--torrents N].

The torrents are those of bench/search_corpus.py, in a SQLite store. Two programs index them, once names only and once
names and words of files:

    Lycosa    an index of tantivy, filled by a process for each core
    Sphinx    its batch indexer. It reads rows that another process makes from the same store, with the same words

Both have the same numbers for filters; Sphinx has no keywords. `--keep FOLDER` keeps the store there, for the next run.
The budget says where the processor time goes: the best of several runs over the same torrents, in one process.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import resource
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import report
from finishing import finish, in_order
from running import ROOT, MemoryWatch, bytes_in, kept, progress, read_torrent_options, torrent_options

sys.path.insert(0, str(ROOT))

from search_corpus import fill
from sphinx_batch import batch_index, fed_row, text_fields

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import PROCESSES
from lycosa.search.core.schema import TORRENTS
from lycosa.search.core.torrent_text import torrent_texts
from lycosa.search.parallel_build import Workers
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_entry import torrent_entry
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.word_list import WordCounter, sampled_words
from lycosa.storage.sinks.codecs import codec_of

LARGE, SIZE_MAX_MB = 10_000_000, 900
BATCH = 4_000
BUDGET_ROWS, BUDGET_RUNS = 20_000, 5
DESCRIBED = 200_000
SPHINX_MEMORY = "1024M"


class Build(NamedTuple):
    """The cost of an index. `peak_mb` is the memory of all processes together, with mapped files."""

    name: str
    wall_s: float
    cpu_s: float
    size_mb: float
    peak_mb: float


def main() -> int:
    """Measure and print."""
    chosen = _options()
    if chosen.feed:
        asyncio.run(feed(RecordsLocation(chosen.feed, None), names_only=chosen.names_only))
        chosen.cpu_file.write_text(str(cpu_s()))
        return 0
    with kept(chosen.keep) as folder:
        location = RecordsLocation(str(folder), None)
        asyncio.run(filled(location, chosen.torrents))
        floors: list[report.Verdict] = []
        lines = [
            "| | seconds | CPU, us each | size, MB | bytes each | peak memory, MB |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for names_only in (True, False):
            lines.append(f"| **{'names only' if names_only else 'names and words of files'}** | | | | | |")
            builds = [apart(partial(build, folder, location, names_only)) for build in (lycosa, sphinx)]
            lines += [row(made, chosen.torrents) for made in builds]
            floors += verdicts(*builds, chosen.torrents, names_only=names_only)
            progress("\n".join(lines))
        blocks = {
            "torrent-index": "\n".join([f"{chosen.torrents:,} torrents. {asyncio.run(described(location))}\n", *lines]),
            "torrent-index-budget": budget(location, min(chosen.torrents, BUDGET_ROWS)),
        }
    return finish("torrent-index", blocks, floors, write=chosen.write, quick=chosen.quick)


def _options() -> argparse.Namespace:
    options = torrent_options(__doc__)
    options.add_argument("--feed", help=argparse.SUPPRESS)
    options.add_argument("--cpu-file", type=Path, help=argparse.SUPPRESS)
    options.add_argument("--names-only", action="store_true", help=argparse.SUPPRESS)
    return read_torrent_options(options)


async def filled(location: RecordsLocation, torrents: int) -> None:
    async with open_records(location, create=True) as store:
        await fill(store, torrents)


async def described(location: RecordsLocation) -> str:
    """Describe the words of the first torrents."""
    named, texts, different = list[str](), list[str](), set[str]()
    files_count = last = 0
    async with open_records(location) as store:
        while len(named) < DESCRIBED and (torrents := await store.searched(last, 1 << 60, BATCH)):
            for each in torrents:
                words = " ".join(filter(None, torrent_texts(each.name, each.paths)))
                different.update(words.split())
                texts.append(words)
                files_count += each.files_count
            named += [each.name for each in torrents]
            last = torrents[-1].id
    count, data = len(named), "\n".join(named).encode()
    share = len(codec_of(".zst").compress(data)) / len(data)
    return (
        f"The first {count:,} have {files_count / count:.1f} files each; their searched texts have"
        f" {sum(len(each.split()) for each in texts) / count:.1f} words and"
        f" {sum(len(each.encode()) for each in texts) / count:.0f} bytes each, and {len(different):,} different words."
        f" `zstd -3` compresses their names to {100 * share:.0f} %."
    )


def verdicts(ours: Build, theirs: Build, torrents: int, *, names_only: bool) -> list[report.Verdict]:
    """Judge the times and sizes. The limits are for LARGE torrents."""
    what = "names only" if names_only else "names and words of files"
    limit_s = 60 if names_only else 150
    found = [
        report.Verdict(ours.wall_s <= theirs.wall_s, f"{what}: {ours.wall_s:.0f} s, Sphinx {theirs.wall_s:.0f} s"),
        report.Verdict(ours.size_mb < theirs.size_mb, f"{what}: {ours.size_mb:.0f} MB, Sphinx {theirs.size_mb:.0f} MB"),
    ]
    if torrents >= LARGE:
        found.append(report.Verdict(ours.wall_s <= limit_s, f"{what}: {ours.wall_s:.0f} s (at most {limit_s})"))
        size = f"{what}: index of {ours.size_mb:.0f} MB (at most {SIZE_MAX_MB})"
        found.append(report.Verdict(ours.size_mb <= SIZE_MAX_MB, size))
    return found


def row(made: Build, torrents: int) -> str:
    each = f"{1e6 * made.cpu_s / torrents:.1f} | {made.size_mb:.0f} | {1e6 * made.size_mb / torrents:.0f}"
    return f"| {made.name} | {made.wall_s:.0f} | {each} | {made.peak_mb:.0f} |"


# ------------------------------------------------------------------------------------------------------------- builds


def apart(work: Callable[[], Build]) -> Build:
    """Run the work in a process of its own, so that its processor time and memory are its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work).result()


def lycosa(folder: Path, location: RecordsLocation, names_only: bool) -> Build:
    """Fill an index of tantivy."""
    place = folder / "bench-index"
    schema = replace(TORRENTS, analysis=("names-only",) if names_only else ())

    async def build() -> None:
        async with open_records(location) as store:
            index = TantivyIndex(place, schema, write=True)
            workers = Workers(partial(open_records, location), PROCESSES, 1)
            indexer = TorrentIndexer(index, store, WordCounter(place, schema), None, workers)
            await indexer.catch_up()
            await indexer.close()

    shutil.rmtree(place, ignore_errors=True)
    try:
        return measured("Lycosa", lambda: asyncio.run(build()), place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def sphinx(folder: Path, location: RecordsLocation, names_only: bool) -> Build:
    """Run the batch indexer of Sphinx."""
    place = folder / "bench-sphinx"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    fed_s = folder / "bench-feed"  # the process that feeds the indexer writes its CPU time: the indexer does not wait
    command = [sys.executable, __file__, "--feed", str(location.state), "--cpu-file", str(fed_s)]
    command += ["--names-only"] if names_only else []
    fields = text_fields(files=not names_only)

    def build() -> None:
        batch_index(place, " ".join(command), fields, SPHINX_MEMORY)

    try:
        made = measured("Sphinx, batch, positions", build, place)
        return made._replace(cpu_s=made.cpu_s + float(fed_s.read_text()))
    finally:
        fed_s.unlink(missing_ok=True)
        shutil.rmtree(place)


def measured(name: str, build: Callable[[], None], place: Path) -> Build:
    """Time the build, with all processes that it starts."""
    began, cpu = time.perf_counter(), cpu_s()
    with MemoryWatch() as memory:
        build()
    wall_s = time.perf_counter() - began
    return Build(name, wall_s, cpu_s() - cpu, bytes_in(place) / 1e6, memory.peak_mb)


def cpu_s() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


async def feed(location: RecordsLocation, *, names_only: bool) -> None:
    """Write the rows for Sphinx on standard output."""
    fields, last = text_fields(files=not names_only), 0
    async with open_records(location) as store:
        while torrents := await store.searched(last, 1 << 60, BATCH):
            entries = [torrent_entry(each, names_only=names_only) for each in torrents]
            sys.stdout.write("".join(fed_row(entry, fields) for entry in entries))
            last = torrents[-1].id


# ------------------------------------------------------------------------------------------------------------- budget


def budget(location: RecordsLocation, rows: int) -> str:
    """Return the processor time of each step, in microseconds for each torrent."""
    steps: dict[str, list[float]] = {}
    for run in range(BUDGET_RUNS):
        for place, names_only in enumerate((True, False)):
            with kept() as folder:
                spent = asyncio.run(one_run(folder, location, rows, names_only=names_only))
            for step, each_us in spent.items():
                best = steps.setdefault(step, [float("inf")] * 2)
                best[place] = min(best[place], each_us)
        progress(f"budget {run}")
    lines = ["| step | names only, us | names and files, us |", "|---|---:|---:|"]
    lines += [f"| {step} | {names:.1f} | {files:.1f} |" for step, (names, files) in steps.items()]
    names, files = (sum(best[place] for best in steps.values()) for place in (0, 1))
    return "\n".join([*lines, f"| together | {names:.1f} | {files:.1f} |"])


async def one_run(folder: Path, location: RecordsLocation, count: int, *, names_only: bool) -> dict[str, float]:
    """Return the microseconds of each step, for each of the first torrents."""
    spent: dict[str, float] = {}

    def add(step: str, seconds: float) -> None:
        spent[step] = spent.get(step, 0.0) + 1e6 * seconds / count

    index = TantivyIndex(folder / "index", TORRENTS, write=True)
    part = index.rebuild().open_part(0, count)
    last = 0
    async with open_records(location) as store:
        while last < count:
            began = time.process_time()
            rows = await store._run(partial(store._searched, last, 1 << 60, BATCH))  # type: ignore[attr-defined]  # noqa: SLF001
            add("rows of the store (SQLite)", time.process_time() - began)
            began = time.process_time()
            torrents = await store.searched(last, 1 << 60, BATCH)
            add("records: numbers and zstd frames", time.process_time() - began)
            last = rows[-1][0]
            began = time.process_time()
            paths = [() if names_only else list(each.paths) for each in torrents]
            add("paths", time.process_time() - began)
            torrents = [each._replace(paths=own) for each, own in zip(torrents, paths, strict=True)]
            began = time.process_time()
            for each in torrents:
                torrent_texts(each.name, each.paths)
            texts_s = time.process_time() - began
            add("words of names and files", texts_s)
            began = time.process_time()
            entries = [torrent_entry(each) for each in torrents]
            add("numbers and keywords", max(time.process_time() - began - texts_s, 0.0))
            began = time.process_time()
            sampled_words(entries[:: 1 if last <= BATCH else 16], TORRENTS.listed)
            add("words for suggestions (sample)", time.process_time() - began)
            began = time.process_time()
            part.add(entries)
            add("tantivy: documents, its thread, commit", time.process_time() - began)
    began = time.process_time()
    part.finish()
    add("tantivy: documents, its thread, commit", time.process_time() - began)
    index.close()
    spent["records: numbers and zstd frames"] -= spent["rows of the store (SQLite)"]
    return spent


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    sys.exit(in_order(main))
