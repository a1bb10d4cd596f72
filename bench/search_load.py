"""The search and the site of torrents under load: `python bench/search_load.py [--torrents N] [--keep FOLDER]`.

    search      of the index and the store in this process: queries of one to three words, top 20, warm and cold
    pages       of the site in its own process, over HTTP, one after the other
    users       200 users who send a request every 5 s each, to a site of one process and to one with a process for each
                core; then 50 users while 1,000 torrents a second change
    lag         from the put of a torrent to the first search that finds it

Times are wall times; beside them is processor time, which other programs on the machine hardly change. Cold means that
no page of the files is in memory. `--keep FOLDER` keeps store and index there, for the next run. FTS5 is measured up to
a million torrents. Exit 1: a floor is not held.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import report
from finishing import finish, in_order
from running import ROOT, Figures, bytes_in, kept, progress, read_torrent_options, torrent_options

sys.path.insert(0, str(ROOT))

from search_budget import STEPS, budget
from search_corpus import DAY_S, count_of, fill, infohash, made, queries
from search_users import PAUSE_S, connected, cpu_clock, detail_path, peak_mb, percentiles, search_path, users, visited

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import open_torrent_index
from lycosa.search.speller import Speller
from lycosa.search.torrents import TorrentRequest, TorrentSearch
from lycosa.search.word_list import WordList
from lycosa.storage.core.torrent_record import TorrentRecord
from tests.servers.children import started

FTS5_MAX = 1_000_000
KINDS = {
    "search": "best 20",
    "filtered": "filtered by type and size, newest first",
    "sized": "1 to 4 GB, most seeders first",
    "recent": "found in the last 7 days, with 2 to 9 files, largest first",
    "facets": "types and languages of the results",
    "newest": "newest 20 of all",
}
FILTERS: dict[str, tuple[dict[str, str], str]] = {
    "filtered": ({"type": "video", "size": ">1MB"}, "date"),
    "sized": ({"size": "1GB..4GB"}, "seeders"),
    "recent": ({"age": "<7", "files": "2..9"}, "size"),
}
"""The filters and the order of a kind of search."""
PAGES = {
    "home": "home",
    "browse": "browse",
    "day": "a day",
    "statistics": "statistics",
    "detail": "torrent",
    "results": "results",
    "results_filtered": "results, filtered and sorted",
}
USERS, UPDATING_USERS, UPDATES = 200, 50, 1_000
PROCESSES = os.cpu_count() or 1
"""The processes that answer the users (`--processes`)."""
CHILDREN_START_S = 5.0
"""How long the children of a site take to start at most."""
MARK_EVERY_S, POLL_S = 1.0, 0.05


class Scale(NamedTuple):
    """How much is measured."""

    queries: int
    cold: int
    pages: int
    seconds: float


FULL, QUICK = Scale(400, 30, 100, 60.0), Scale(40, 3, 10, 5.0)


def main() -> int:
    """Measure, print, judge."""
    chosen = read_torrent_options(torrent_options(__doc__))
    scale = QUICK if chosen.quick else FULL
    with kept(chosen.keep) as folder:
        figures = asyncio.run(measure(folder, chosen.torrents, scale))
    name = "search-load-small" if chosen.torrents <= FTS5_MAX else "search-load"
    blocks = {name: table(figures), f"{name}-budget": budget_table(figures["budget"])}
    return finish(name, blocks, verdicts(figures), write=chosen.write, quick=chosen.quick)


async def measure(folder: Path, torrents: int, scale: Scale) -> Figures:
    """Fill the store and the index, then measure all."""
    place = Place(folder)
    async with open_records(place.location, create=True) as store:
        await fill(store, torrents)
    figures: Figures = {"torrents": torrents, "index": indexed(place, "tantivy")}
    figures["tantivy"] = await searches(place, "tantivy", torrents, scale)
    figures["budget"] = await budgeted(place, torrents, scale)
    if torrents <= FTS5_MAX:
        figures["fts5_index"] = indexed(place, "fts5")
        figures["fts5"] = await searches(place, "fts5", torrents, scale)
    with site(place) as (process, port):
        figures["first_ms"] = await first_result(port, torrents)
        figures["pages"] = await pages(process.pid, port, torrents, scale)
        figures["users_of_one"] = await visits(process.pid, port, torrents, scale)
    with site(place, PROCESSES) as (process, port):
        figures["users"] = await visits(process.pid, port, torrents, scale)
        figures["updates"] = await updated(place, process.pid, port, torrents, scale)
        figures["site_mb"] = peak_mb(process.pid)
    return figures


# --------------------------------------------------------------------------------------------------------- the programs


class Place(NamedTuple):
    """The folder with the store and the indexes."""

    folder: Path

    @property
    def location(self) -> RecordsLocation:
        return RecordsLocation(str(self.folder / "state"), None)

    def index(self, engine: str) -> Path:
        return self.folder / engine

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "lycosa", *arguments, "--state", str(self.location.state)]


def indexed(place: Place, engine: str) -> Figures:
    """Index what is not indexed yet. Return the CPU time and the size of the index."""
    folder = place.index(engine)
    command = place.command("index", "--index", str(folder))
    process = subprocess.Popen(command if folder.exists() else [*command, "--engine", engine], cwd=ROOT)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, f"the indexer ended with {process.returncode}"
    return {
        "bytes": bytes_in(folder),
        "cpu_s": used.ru_utime + used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
    }


def running(command: Sequence[str]) -> AbstractContextManager[subprocess.Popen[str]]:
    """Run a program during the block."""
    quiet = subprocess.DEVNULL if "--follow" in command else None
    return started(command, cwd=ROOT, stderr=quiet)


@contextmanager
def site(place: Place, processes: int = 1) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Run the site. Return its process and port."""
    options = ["--index", str(place.index("tantivy")), "--port", "0", "--processes", str(processes)]
    with running(place.command("site", *options)) as process:
        line = process.stdout.readline() if process.stdout else ""
        found = re.search(r":(\d+)/", line)
        assert found, f"the site does not start: {line}"
        if processes > 1:
            time.sleep(CHILDREN_START_S)
        yield process, int(found[1])


# ------------------------------------------------------------------------------------------------------------- searches


@asynccontextmanager
async def search_of(place: Place, engine: str) -> AsyncIterator[TorrentSearch]:
    """Open the index and the store, as the site does."""
    folder = place.index(engine)
    async with open_records(place.location) as store:
        index = open_torrent_index(folder)
        try:
            yield TorrentSearch(index, store, time.time, Speller(WordList(folder)))
        finally:
            index.close()


async def budgeted(place: Place, torrents: int, scale: Scale) -> dict[str, Figures]:
    """Return the CPU time of each step of a page of results."""
    folder = place.index("tantivy")
    async with open_records(place.location) as store:
        index = open_torrent_index(folder)
        try:
            texts = list(islice(queries(random.Random(1), torrents), scale.queries))
            steps = await budget(index, store, Speller(WordList(folder)), texts)
        finally:
            index.close()
    progress(", ".join(f"{step}: {at['mean']:.1f}, p99 {at['p99']:.1f}" for step, at in steps.items()))
    return steps


async def searches(place: Place, engine: str, torrents: int, scale: Scale) -> Figures:
    """Return how long each kind of search takes."""
    texts = list(islice(queries(random.Random(1), torrents), scale.queries))
    figures: Figures = {}
    async with search_of(place, engine) as search:
        for kind in KINDS:
            work = kind_of(search, kind)
            some = texts[: scale.queries // 4] if kind == "newest" else texts
            works = [partial(work, text) for text in some]
            await timed(works, time.process_time)  # now the files are in memory
            figures[kind] = await timed(works, time.process_time)
            progress(f"{engine}, {kind}: {told(figures[kind])}")
    figures["cold"] = percentiles([await cold(place, engine, text) for text in texts[-scale.cold :]])
    progress(f"{engine}, cold: {figures['cold']['p99']:.0f} ms")
    return figures


def kind_of(search: TorrentSearch, kind: str) -> Callable[[str], Awaitable[Any]]:
    """Return a function that runs a search of this kind for a text."""
    if kind == "facets":
        return lambda text: search.count_values(TorrentRequest(text))
    if kind == "newest":
        return lambda _: search.search(TorrentRequest(sort="date"))
    fields, sort = FILTERS.get(kind, ({}, ""))
    return lambda text: search.search(TorrentRequest(text, fields, sort))


async def cold(place: Place, engine: str, text: str) -> float:
    """Return the milliseconds of a search whose files are not in memory."""
    gc.collect()  # files that uncollected objects still map would stay in memory
    for file in place.folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as opened:
                os.fdatasync(opened.fileno())
                os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    async with search_of(place, engine) as search:
        began = time.perf_counter()
        await search.search(TorrentRequest(text))
        return (time.perf_counter() - began) * 1000


async def timed(works: Sequence[Callable[[], Awaitable[Any]]], cpu: Callable[[], float]) -> Figures:
    """Run `works` one after the other. Return percentiles of their milliseconds and of their CPU milliseconds."""
    took, spent = [], []
    for work in works:
        began, began_cpu = time.perf_counter(), cpu()
        await work()
        took.append((time.perf_counter() - began) * 1000)
        spent.append((cpu() - began_cpu) * 1000)
    return percentiles(took) | {"cpu": percentiles(spent)}


# ------------------------------------------------------------------------------------------------------------- the site


async def first_result(port: int, torrents: int) -> float:
    """Return the milliseconds of the first search of a site that has just started."""
    text = next(queries(random.Random(2), torrents))
    began = time.perf_counter()
    async with connected(port) as connection:
        await connection.get(search_path(text))
    return (time.perf_counter() - began) * 1000


async def pages(pid: int, port: int, torrents: int, scale: Scale) -> dict[str, Figures]:
    """Return how long each page takes, and its bytes as sent and unpacked."""
    chance = random.Random(3)
    texts = list(islice(queries(chance, torrents), scale.pages))
    today = time.time()
    days = [time.strftime("%Y-%m-%d", time.gmtime(today - DAY_S * (number % 30))) for number in range(scale.pages)]
    paths = {
        "home": ["/"] * scale.pages,
        "browse": ["/browse"] * scale.pages,
        "day": [f"/search?date={each}" for each in days],
        "statistics": ["/statistics"] * scale.pages,
        "detail": [detail_path(chance.randrange(torrents)) for _ in texts],
        "results": [search_path(text) for text in texts],
        "results_filtered": [search_path(text, type="video", size=">1MB", sort="date") for text in texts],
    }
    figures: dict[str, Figures] = {}
    async with connected(port) as connection:
        for page, some in paths.items():
            answers = []

            async def get(path: str, answers: list = answers) -> None:
                answers.append(await connection.get(path))

            await get(some[0])
            figures[page] = await timed([partial(get, path) for path in some], cpu_clock(pid))
            figures[page]["sent"] = max(len(each.sent) for each in answers)
            figures[page]["bytes"] = max(len(each.body) for each in answers)
            progress(f"{page}: {told(figures[page])}, {figures[page]['bytes']:,} bytes")
    return figures


async def visits(pid: int, port: int, torrents: int, scale: Scale, visitors: int = USERS) -> Figures:
    """Return how the site answers this many users."""
    chance = random.Random(4)
    # Made before the start: new queries take half a second at times, in which the users would send nothing.
    most = int(2 * visitors * (scale.seconds / PAUSE_S + 2))
    paths = list(islice(visited(chance, queries(chance, torrents), torrents), most))
    cpu, began = cpu_clock(pid), time.perf_counter()
    spent = cpu()
    figures = await users(port, visitors, scale.seconds, iter(paths), seed=visitors)
    figures["cores"] = (cpu() - spent) / (time.perf_counter() - began)
    figures["cpu_ms"] = (cpu() - spent) / figures["requests"] * 1000
    progress(f"{visitors} users: p99 {figures['p99']:.0f} ms, CPU {figures['cpu_ms']:.1f} ms each")
    return figures


# -------------------------------------------------------------------------------------------------------------- updates


async def updated(place: Place, pid: int, port: int, torrents: int, scale: Scale) -> Figures:
    """Return how far the index is behind, and how the site answers, while torrents change."""
    command = place.command("index", "--index", str(place.index("tantivy")), "--follow")
    with running(command) as indexer:
        writer = multiprocessing.get_context("spawn").Process(target=write, args=(place, torrents, scale.seconds))
        writer.start()
        try:
            lags, figures = await asyncio.gather(
                marked(place, port, scale.seconds), visits(pid, port, torrents, scale, UPDATING_USERS)
            )
        finally:
            writer.join()
        assert writer.exitcode == 0
        cpu = cpu_clock(indexer.pid)() / scale.seconds
        figures |= {"lag": percentiles(lags), "indexer_cores": cpu, "indexer_mb": peak_mb(indexer.pid)}
    progress(f"lag of the index: p50 {figures['lag']['p50']:.0f} ms, p99 {figures['lag']['p99']:.0f} ms")
    return figures


def write(place: Place, torrents: int, seconds: float) -> None:
    """Change torrents in the store, in a process of its own: half of them are new, half have other seeders."""
    asyncio.run(_write(place, torrents, seconds))


async def _write(place: Place, torrents: int, seconds: float) -> None:
    chance = random.Random(time.time())
    steps = 4
    rows = UPDATES // steps // 2
    async with open_records(place.location) as store:
        began = time.monotonic()
        for step in range(int(seconds * steps)):
            await asyncio.sleep(max(began + step / steps - time.monotonic(), 0))
            now = int(time.time())
            await store.put([new(chance, now) for _ in range(rows)], now)
            keys = [infohash(chance.randrange(torrents)) for _ in range(rows)]
            await store.set_popularity([count_of(chance, key, now + step) for key in keys])
        behind = time.monotonic() - began - seconds
        progress(f"the store took {UPDATES:,} changes a second{f', {behind:.0f} s late' if behind > 1 else ''}")


def new(chance: random.Random, now: int) -> TorrentRecord:
    """Return a torrent that the store does not have."""
    return made(chance, chance.randrange(1 << 40, 1 << 60), now)


async def marked(place: Place, port: int, seconds: float) -> list[float]:
    """Store a torrent every second. Return the milliseconds until a search finds it."""
    chance, lags = random.Random(time.time()), []
    async with open_records(place.location) as store, connected(port) as connection:
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            mark = "mark" + "".join(chance.choices("bcdfghjklmnp", k=12))
            await store.put([replace(new(chance, int(time.time())), name=mark)], time.time())
            began = time.perf_counter()
            while b'"total":0' in (await connection.get(f"/search.json?q={mark}")).body:  # noqa: ASYNC110  a client polls
                await asyncio.sleep(POLL_S)
            lags.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(max(MARK_EVERY_S - lags[-1] / 1000, 0))
    return lags


# ------------------------------------------------------------------------------------------------------------ reporting


def told(at: Figures) -> str:
    """Return percentiles for the progress lines."""
    return f"p50 {at['p50']:.1f}, p99 {at['p99']:.1f} ms; CPU {at['cpu']['p50']:.1f}, {at['cpu']['p99']:.1f} ms"


def table(figures: Figures) -> str:
    """Return the figures as Markdown tables."""
    torrents, index, users_, updates = (figures[key] for key in ("torrents", "index", "users", "updates"))
    lines = [
        f"{torrents:,} torrents. Times in ms.",
        "",
        "| searches | p50 | p95 | p99 | CPU p50 | CPU p99 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for engine, label in (("tantivy", "tantivy"), ("fts5", "FTS5")):
        at = figures.get(engine, {})
        lines += [row(f"{label}: {text}", at[kind]) for kind, text in KINDS.items() if kind in at]
        lines += [row(f"{label}: best 20, cold", at["cold"])] if at else []
    lines += ["", "| pages | p50 | p95 | p99 | CPU p50 | CPU p99 | kB | kB, compressed |"]
    lines += ["|---|---:|---:|---:|---:|---:|---:|---:|"]
    for page, text in PAGES.items():
        at = figures["pages"][page]
        lines.append(f"{row(text, at)} {at['bytes'] / 1000:.1f} | {at['sent'] / 1000:.1f} |")
    lines += [
        "",
        "| users | requests/s | p50 | p95 | p99 | CPU of the site per request |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    divided = f"`--processes {PROCESSES}`"
    for text, at in (
        (f"{USERS}", figures["users_of_one"]),
        (f"{USERS}, {divided}", users_),
        (f"{UPDATING_USERS}, and {UPDATES:,} changes a second, {divided}", updates),
    ):
        cells = (f"{at[key]:.1f}" for key in ("rate", "p50", "p95", "p99", "cpu_ms"))
        lines.append(f"| {text} | {' | '.join(cells)} |")
    lag = updates["lag"]
    each, memory_mb = index["bytes"] / torrents, max(index["peak_mb"], updates["indexer_mb"])
    last = [
        f"The index takes {index['bytes'] / 1e6:,.0f} MB, {each:.0f} bytes for each torrent.",
        f"While torrents change, a new one is found after {lag['p50']:.0f} ms (p99 {lag['p99']:.0f} ms),",
        f"and the indexer uses {updates['indexer_cores']:.2f} of a core.",
        f"Peak memory: site {figures['site_mb']:.0f} MB, indexer {memory_mb:.0f} MB.",
    ]
    return "\n".join([*lines, "", " ".join(last)])


def budget_table(steps: dict[str, Figures]) -> str:
    """Return the processor time of each step of a page of results."""
    lines = ["| a page of results | CPU ms, mean | p50 | p99 |", "|---|---:|---:|---:|"]
    cells = (" | ".join(f"{steps[step][key]:.1f}" for key in ("mean", "p50", "p99")) for step in STEPS)
    return "\n".join([*lines, *(f"| {text} | {each} |" for text, each in zip(STEPS.values(), cells, strict=True))])


def row(text: str, at: Figures) -> str:
    """Return a row of a table with these percentiles."""
    spent = at.get("cpu")
    cells = [f"{at[key]:.1f}" for key in ("p50", "p95", "p99")]
    cells += [f"{spent[key]:.1f}" for key in ("p50", "p99")] if spent else ["", ""]
    return f"| {text} | {' | '.join(cells)} |"


def verdicts(figures: Figures) -> list[report.Verdict]:
    """Return whether each figure is within its limit."""
    search, shown = figures["tantivy"], figures["pages"]
    page = max(shown[each]["p99"] for each in ("home", "browse", "day", "detail"))
    largest = max(shown["home"]["bytes"], shown["results"]["bytes"]) / 1000
    limits = (
        (search["search"]["p99"], 30, "ms: a search, p99"),
        *((search[kind]["p99"], 80, f"ms: a search, {KINDS[kind]}, p99") for kind in FILTERS),
        (search["facets"]["p99"], 150, "ms: types and languages of the results, p99"),
        (search["cold"]["p99"], 300, "ms: a cold search, p99"),
        (page, 50, "ms: home, browse, day and torrent pages, p99"),
        (figures["users"]["p99"], 100, f"ms: {USERS} users, p99"),
        (largest, 60, "kB: home and results"),
        (figures["first_ms"], 200, "ms: the first result of a new site"),
    )
    return [report.Verdict(found <= most, f"{found:.0f} {text} (at most {most})") for found, most, text in limits]


if __name__ == "__main__":
    sys.exit(in_order(main))
