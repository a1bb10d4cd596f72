"""A seeded crawl of a generated site on an embedded frontier with real items, in a process that can be killed anywhere.

`Site` defines the links and the outcome of every page, so that the result of a whole crawl is known in advance. `Crawl`
takes the place of the engine, with the real state folder, frontier, sink, committer and, if `with_records`, a record
store: it leases, ends leases in random order and commits after at most `acks` ended leases. Each page stores
a record per child, as it would store cookies: the record must exist when the child is leased. Time is virtual; each run
starts later than the one before.

As a program it executes the `Run` given as JSON; with no argument it reads runs from standard input, one per line,
executes each in a fork of its own (a fresh process without the time for imports), and answers with the exit status.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import select
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.engine.state_saver import StateSaver
from lycosa.frontier.core.description import Description
from lycosa.frontier.core.model import HostFacts, Lease, SegmentState, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm import filters, frontier, levels, memtable, open_segment, store
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.state_dir import StateDir
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from lycosa.storage.ports import KeyStore
from lycosa.storage.sinks.file import FileSink
from tests.storage.memory_keystore import MemoryKeyStore

CONCURRENCY = 8
POLICY = Policy(robots=False, delay_s=0.2, concurrency_per_host=3)
HOSTS = 5
SEGMENTS = ("", "2026-11-19", "2026-11-20")
ROOTS = len(SEGMENTS)
T0 = 2_000_000_000.0
RUN_S = 10_000.0
"""Virtual seconds between the starts of two runs; no page is delayed that long."""

ITEMS_FLUSHED, RECORDS_FLUSHED, COMMITTED = "items flushed", "records flushed", "commit returned"
STEPS = (ITEMS_FLUSHED, RECORDS_FLUSHED, *memtable.STEPS, COMMITTED)
LIMITS: dict[tuple[Any, str], int] = {
    (levels, "L0_MAX"): 60,
    (levels, "SCAN_ROWS"): 10,
    (memtable, "MEMTABLE_MAX"): 80,
    (memtable, "SLICE_MIN"): 20,
    (memtable, "SLICE_MAX"): 40,
    (filters, "ADDED_MAX"): 50,
    (store, "BUFFER_MAX"): 8,
    (open_segment, "RECENT_MAX"): 20,
}
"""Replaced constants, by module and name, so that rare events become frequent."""

EXPECTED = 32
"""URLs that the first Bloom filter is sized for."""

CHILDREN = "children"
"""The table of the record store."""

FETCHES, COMMITS = "fetches.log", "commits.log"
OUTPUT = "output"
"""A folder apart from the state, which exists from the start: a sync of the names in one of the two folders must not
make the names in the other durable."""

ITEMS = f"{OUTPUT}/items.jsonl"


class Run(msgspec.Struct):
    """The parameters of one process. It kills itself at the `occurrence`-th `step`, or is killed after
    `kill_after_s`.

    `folder` holds the state and the items, `logs` the log files for the test; `small` selects the `LIMITS`,
    `with_records` a record store.
    """

    folder: str
    logs: str
    seed: int
    pages: int
    number: int = 0
    sync: bool = False
    acks: int = 10
    step: str = ""
    occurrence: int = 1
    kill_after_s: float | None = None
    small: bool = True
    with_records: bool = False


class Committed(msgspec.Struct):
    """The durable result of commits: the done pages, the dead pages, and the end of the items."""

    done: list[int] = []
    dead: list[int] = []
    position: int = 0


@dataclass(frozen=True)
class Site:
    """Pages by number. The same URL is a separate page in each segment. `seed` and number determine everything."""

    seed: int
    pages: int

    def record(self, page: int) -> UrlRecord:
        """Return the record of a page, as its parent pushes it."""
        segment, number = SEGMENTS[page % ROOTS], page // ROOTS
        host = f"http://h{number % HOSTS}.example:80"
        url = f"{host}/{number}"
        fingerprint = int.from_bytes(blake2b(url.encode(), digest_size=8).digest())
        not_before = T0 + self.draw(page, 30) if self.kind(page) == "delayed" else 0.0
        return UrlRecord(
            1,
            fingerprint,
            url,
            host,
            segment,
            priority=page % 3,
            not_before=not_before,
            dont_filter=self.kind(page) == "unfiltered",
        )

    def page(self, record: UrlRecord) -> int:
        """Return the number of the page with this record."""
        return int(record.url.rpartition("/")[2]) * ROOTS + SEGMENTS.index(record.segment)

    def draw(self, page: int, count: int) -> int:
        """Return a number from 0 to count - 1 that the seed determines for this page."""
        return crc32(f"{self.seed}/{page}/{count}".encode()) % count

    def kind(self, page: int) -> str:
        """Return the kind of a page; roots are plain."""
        kinds = ("dead", "missing", "flaky", "delayed", "unfiltered")
        number = self.draw(page, 3 * len(kinds))
        return kinds[number] if page >= ROOTS and number < len(kinds) else "plain"

    def failures(self, page: int) -> int:
        """Return how often a page fails before it is done or dead."""
        return self.draw(page, 3) + 1 if self.kind(page) in {"dead", "flaky"} else 0

    def children(self, page: int) -> list[int]:
        """Return the links of a page, within its segment: up to three children of its own, and some other pages."""
        number, segment = divmod(page, ROOTS)
        own = [child * ROOTS + segment for child in range(3 * number + 1, 3 * number + 4)]
        draws = [crc32(f"{self.seed}-{page}-{n}".encode()) for n in range(3)]
        others = [number % (self.pages // ROOTS) * ROOTS + segment for number in draws]
        return [child for child in own if child < self.pages] + [
            other for other in others if self.kind(other) != "unfiltered"
        ]

    @cached_property
    def reachable(self) -> set[int]:
        """All pages that a crawl finds."""
        found, ahead = set(range(ROOTS)), list(range(ROOTS))
        while ahead:
            page = ahead.pop()
            new = set(self.children(page)) - found if self.kind(page) != "dead" else set()
            found |= new
            ahead += new
        return found

    @property
    def dead(self) -> set[int]:
        """The pages that end as dead."""
        return {page for page in self.reachable if self.kind(page) == "dead"}

    def reason(self, page: int) -> str:
        """Return the reason with which a page is done."""
        return "404" if self.kind(page) == "missing" else "200"

    @property
    def reasons(self) -> Counter[str]:
        """The number of done pages, by reason."""
        return Counter(self.reason(page) for page in self.reachable - self.dead)

    @property
    def fetches(self) -> int:
        """The number of fetches of a crawl without kills."""
        failed = sum(map(self.failures, self.reachable))
        return failed + len(self.reachable) - len(self.dead)


class Sink(FileSink):
    """Reports each flush."""

    on_step: Callable[[str], None] = staticmethod(lambda _: None)

    async def flush(self) -> int:
        position = await super().flush()
        self.on_step(ITEMS_FLUSHED)
        return position


class RecordStore(SqliteKeyStore):
    """Reports each flush."""

    on_step: Callable[[str], None] = staticmethod(lambda _: None)

    async def flush(self) -> None:
        await super().flush()
        self.on_step(RECORDS_FLUSHED)


class Crawl:
    """One run over a folder. `on_fetch` gets every leased page, `on_commit` the result of each commit."""

    def __init__(
        self,
        run: Run,
        *,
        on_fetch: Callable[[int], None] = lambda _: None,
        on_release: Callable[[int], None] = lambda _: None,
        on_commit: Callable[[Committed], None] = lambda _: None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.site = Site(run.seed, run.pages)
        self.config = run
        self.rng = random.Random(f"{run.seed} {run.number}")
        self.now = T0 + run.number * RUN_S
        self.on_fetch, self.on_release, self.on_commit, self.on_step = on_fetch, on_release, on_commit, on_step
        self.leases: list[Lease] = []
        self.uncommitted = Committed()
        self.since_commit = 0

    async def run(self) -> None:
        """Crawl to the end, from the state in the folder."""
        folder = Path(self.config.folder)
        state = StateDir(folder / "state")
        state.check_complete()
        self.frontier = frontier.embedded_frontier(
            state.frontier, POLICY, sync=self.config.sync, now=self.now, on_step=self.on_step, expected=EXPECTED
        )
        self.sink = Sink(folder / ITEMS, sync=self.config.sync)
        self.sink.on_step = self.on_step
        self.state_saver = StateSaver(self._records(state))
        try:
            if not state.description.name:
                state.describe(Description(name="generated", seeds=["http://h0.example/0"]))
            self.committer = Committer(self.frontier, [self.sink], 1e9, self.config.acks, self._committed)
            self.committer.save = self.state_saver.save
            self.operations = LocalOperations(self.frontier, self.committer.commit)
            await self.on_open()
            starts = await self.committer.open_sinks()
            assert (folder / ITEMS).stat().st_size == starts[self.sink.name], "items without a commit are still there"
            if self.config.number % 2:
                await self.operations.compact()
            await self._drop_other_segments()
            await self.frontier.push([self.site.record(root) for root in range(ROOTS)])
            while await self._lease():
                await self._end_some_leases()
            await self.committer.finish()
            await self.check_end()
        finally:
            await self.sink.close()
            await self.state_saver.close()
            await self.frontier.close()
            state.close()

    def _records(self, state: StateDir) -> KeyStore:
        if not self.config.with_records:
            return MemoryKeyStore()
        records = RecordStore(state.records, sync=self.config.sync)
        records.on_step = self.on_step
        return records

    async def on_open(self) -> None:
        """Inspect the frontier before anything changes. A hook for subclasses."""

    async def check_end(self) -> None:
        """Check that at the end nothing is missing or superfluous."""
        stats = await self.frontier.stats()
        assert (stats.queued, stats.leased, stats.delayed) == (0, 0, 0), stats
        reasons = self.site.reasons
        assert (stats.done, dict(stats.reasons)) == (reasons.total(), dict(reasons)), (stats, reasons)
        found = await self.frontier.dead(stats.dead + 1)
        dead = [(self.site.page(record), record.attempts, reason) for record, reason in found]
        expected = [(page, self.site.failures(page), "503") for page in sorted(self.site.dead)]
        assert sorted(dead) == expected, (sorted(dead), expected)
        assert stats.dead == len(dead)
        problems = self.frontier.store.verify(lambda _: None)  # on the store itself, as a program without a sink does
        assert not problems, problems

    async def _lease(self) -> bool:
        while True:
            for lease in await self.frontier.lease(CONCURRENCY - len(self.leases), self.now):
                page = self.site.page(lease.record)
                missing = (
                    self.config.with_records
                    and page >= ROOTS
                    and self.state_saver.store.get(CHILDREN, str(page)) is None
                )
                assert not missing, f"page {page} was committed without its record"
                self.leases.append(lease)
                self.on_fetch(page)
            if self.leases:
                return True
            ready = self.frontier.next_ready(self.now)
            if ready is None:
                return False
            self.now = max(self.now, ready)

    async def _end_some_leases(self) -> None:
        for _ in range(self.rng.randint(1, len(self.leases))):
            lease = self.leases.pop(self.rng.randrange(len(self.leases)))
            await self._end_lease(lease)
        self.now += self.rng.random()
        if self.rng.random() < 0.05:
            await self._drop_a_segment()
        due = self.since_commit >= self.rng.randint(1, self.config.acks - CONCURRENCY)
        if due and self.since_commit:
            await self.committer.commit()

    async def _drop_a_segment(self) -> None:
        """Push into another segment, and drop it, during the crawl."""
        name = f"run {self.config.number} at {self.now}"
        await self.operations.push([msgspec.structs.replace(self.site.record(0), segment=name)])
        await self._drop_other_segments()

    async def _drop_other_segments(self) -> None:
        for segment in await self.operations.segments():
            if segment.name not in SEGMENTS and segment.state != SegmentState.DROPPED:
                assert await self.operations.drop(segment.name) == 1

    async def _end_lease(self, lease: Lease) -> None:
        page = self.site.page(lease.record)
        drawn = self.rng.random()
        if drawn < 0.05:
            assert await self.frontier.release(lease, self.now)
            self.on_release(page)
            return
        if drawn < 0.1:
            await self._save_host(lease.record.host)
        self.since_commit += 1
        if lease.record.attempts < self.site.failures(page):
            await self._fail(lease, page)
        else:
            await self._finish(lease, page)
        assert not await self.frontier.ack(lease, "200", (), self.now)

    async def _fail(self, lease: Lease, page: int) -> None:
        last = self.site.kind(page) == "dead" and lease.record.attempts + 1 == self.site.failures(page)
        retry_at = None if last else self.now + self.site.draw(page, 20) + 1
        assert await self.frontier.nack(lease, "503", retry_at, self.now)
        if last:
            self.uncommitted.dead.append(page)

    async def _finish(self, lease: Lease, page: int) -> None:
        children = [self.site.record(child) for child in self.site.children(page)]
        for child in self.site.children(page):
            self.state_saver.store.put(CHILDREN, str(child), b"%d" % page)
        assert await self.frontier.ack(lease, self.site.reason(page), children, self.now)
        self.sink.write(
            self.sink.prepare({"page": page, "attempts": lease.record.attempts}),
            ItemKey(lease.record.url, lease.record.fingerprint),
        )
        self.uncommitted.done.append(page)

    async def _save_host(self, host: str) -> None:
        await self.frontier.block_host(host, self.now + 2.0)
        await self.frontier.set_host_facts(host, HostFacts(b"User-agent: *\n", 200, self.now), self.now)

    def _committed(self, positions: Mapping[str, int]) -> None:
        self.uncommitted.position = positions[self.sink.name]
        self.on_commit(self.uncommitted)
        self.uncommitted = Committed()
        self.since_commit = 0
        self.on_step(COMMITTED)


class FailingHandler(logging.Handler):
    """Fails on every log message: after a kill no filter may have to be rebuilt, and no file repaired."""

    def emit(self, record: logging.LogRecord) -> None:
        """Raise `AssertionError`."""
        raise AssertionError(record.getMessage())


def kill_at_step(run: Run) -> Callable[[str], None]:
    """Return a step callback that kills this process at the step of the run."""
    passed: Counter[str] = Counter()

    def on_step(name: str) -> None:
        assert name in STEPS, name
        passed[name] += 1
        if name == run.step and passed[name] == run.occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def open_log(path: Path) -> Callable[[bytes], None]:
    """Return a function that appends a line to a file in one write, so that it survives a kill."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return lambda line: os.write(handle, line + b"\n") and None


def execute(run: Run) -> None:
    """Execute a run in this process."""
    for (module, name), value in LIMITS.items() if run.small else ():
        assert hasattr(module, name), name
        setattr(module, name, value)
    logs = Path(run.logs)
    fetches, commits = open_log(logs / FETCHES), open_log(logs / COMMITS)
    crawl = Crawl(
        run,
        on_fetch=lambda page: fetches(b"%d %f %f" % (page, time.monotonic(), time.process_time())),
        on_release=lambda page: fetches(b"%d released" % page),
        on_commit=lambda committed: commits(msgspec.json.encode(committed)),
        on_step=kill_at_step(run),
    )
    asyncio.run(crawl.run())


def execute_in_fork(run: Run) -> int:
    """Execute a run in a fork. Return the exit code, or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        logging.getLogger("lycosa").addHandler(FailingHandler(logging.WARNING))
        logging.getLogger("lycosa.frontier").setLevel(logging.INFO)
        logging.getLogger("lycosa.frontier").addHandler(FailingHandler(logging.INFO))
        try:
            execute(run)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    handle = os.pidfd_open(pid)
    if not select.select([handle], [], [], run.kill_after_s)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve() -> None:
    """Execute runs from standard input, and answer each with a line: exit code, monotonic start and end time."""
    for line in sys.stdin:
        started = time.monotonic()
        code = execute_in_fork(msgspec.json.decode(line, type=Run))
        print(code, started, time.monotonic(), flush=True)


def items(folder: Path, end: int | None = None) -> list[dict[str, Any]]:
    """Return the items of a folder up to a position. Every line must be complete."""
    file = folder / ITEMS
    content = file.read_bytes()[:end] if file.exists() else b""
    assert content.endswith(b"\n") or not content
    return [msgspec.json.decode(line) for line in content.splitlines()]


def assert_complete(site: Site, folder: Path) -> None:
    """Check that every page that is not dead has its item exactly once."""
    found = Counter((item["page"], item["attempts"]) for item in items(folder))
    alive = site.reachable - site.dead
    expected = Counter((page, site.failures(page)) for page in alive)
    twice, missing = found - expected, expected - found
    assert (twice, missing) == (Counter(), Counter()), f"twice: {twice}, missing: {missing}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        execute(msgspec.json.decode(sys.argv[1], type=Run))
    else:
        serve()
