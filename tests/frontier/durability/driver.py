"""A seeded crawl of a made-up site on an embedded frontier with real items, in a process that can be killed anywhere.

`Site` knows what every page leads to and what becomes of it, so that the outcome of a whole crawl is known beforehand.
`crawl` plays the engine with the real state folder, frontier, sink, committer and, where the order `keeps`, records
beside the frontier: it leases, settles in random order and commits after at most `acks` settled leases. What a page
leads to is noted in the records, as cookies are that its children need: they must be there when a child is leased.
Time is virtual; each run begins later than the one before.

As a program it runs the `Order` given as JSON; with no argument it reads orders from standard input, one a line, runs
each in a fork of its own (a fresh process without the time to import), and answers with the exit status.
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
from lycosa.storage.keystore.memory import MemoryKeyStore
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from lycosa.storage.ports import KeyStore
from lycosa.storage.sinks.jsonl import JsonlSink

CONCURRENCY = 8
POLICY = Policy(robots=False, delay_s=0.2, concurrency_per_host=3)
HOSTS = 5
SEGMENTS = ("", "2026-11-19", "2026-11-20")
ROOTS = len(SEGMENTS)
T0 = 2_000_000_000.0
RUN_S = 10_000.0
"""Virtual seconds between the starts of two runs; no page waits that long."""

ITEMS_FLUSHED, KEPT, COMMITTED = "items flushed", "records flushed", "commit returned"
STEPS = (ITEMS_FLUSHED, KEPT, *frontier.STEPS, COMMITTED)
LIMITS: dict[tuple[Any, str], int] = {
    (levels, "L0_MAX"): 60,
    (levels, "SCAN_ROWS"): 10,
    (memtable, "OVERLAY_MAX"): 80,
    (memtable, "SLICE_MIN"): 20,
    (memtable, "SLICE_MAX"): 40,
    (filters, "ADDED_MAX"): 50,
    (store, "BUFFER_MAX"): 8,
    (open_segment, "RECENT_MAX"): 20,
}
"""By module and name, what is replaced so that what happens seldom happens often."""

EXPECTED = 32
"""URLs that the Bloom filter is first made for."""

FOUND = "found"
"""The table of the records."""

FETCHES, PROMISES = "fetches.log", "promises.log"
OUTPUT = "output"
"""A folder of its own, there from the start: what is done for the names in one folder must not help another."""

ITEMS = f"{OUTPUT}/items.jsonl"


class Order(msgspec.Struct):
    """What one process does. It kills itself at the `occurrence`-th time of `step`, or is killed after `kill_after_s`.

    `folder` holds the state and the items, `logs` what the test wants to know; `small` asks for `LIMITS`, `keeps` for
    records.
    """

    folder: str
    logs: str
    seed: int
    pages: int
    run: int = 0
    sync: bool = False
    acks: int = 10
    step: str = ""
    occurrence: int = 1
    kill_after_s: float | None = None
    small: bool = True
    keeps: bool = False


class Promise(msgspec.Struct):
    """What a returned commit made durable: pages that are done, pages that are dead, and where the items end."""

    done: list[int] = []
    dead: list[int] = []
    position: int = 0


@dataclass(frozen=True)
class Site:
    """Pages by number. The same URL is a page of its own in each segment. All is a function of `seed` and number."""

    seed: int
    pages: int

    def record(self, page: int) -> UrlRecord:
        """Return the record of a page as its parent pushes it."""
        segment, number = SEGMENTS[page % ROOTS], page // ROOTS
        host = f"http://h{number % HOSTS}.example:80"
        url = f"{host}/{number}"
        fingerprint = int.from_bytes(blake2b(url.encode(), digest_size=8).digest())
        later = T0 + self.chance(page, 30) if self.fate(page) == "later" else 0.0
        return UrlRecord(
            1,
            fingerprint,
            url,
            host,
            segment,
            priority=page % 3,
            not_before=later,
            dont_filter=self.fate(page) == "unfiltered",
        )

    def page(self, record: UrlRecord) -> int:
        """Return the number of the page with this record."""
        return int(record.url.rpartition("/")[2]) * ROOTS + SEGMENTS.index(record.segment)

    def chance(self, page: int, sides: int) -> int:
        """Return a number from 0 to sides - 1 that belongs to this page."""
        return crc32(f"{self.seed}/{page}/{sides}".encode()) % sides

    def fate(self, page: int) -> str:
        """Return what is special about a page; roots are plain."""
        fates = ("dead", "missing", "flaky", "later", "unfiltered")
        lot = self.chance(page, 3 * len(fates))
        return fates[lot] if page >= ROOTS and lot < len(fates) else "plain"

    def failures(self, page: int) -> int:
        """Return how often a page fails before it is done or given up."""
        return self.chance(page, 3) + 1 if self.fate(page) in {"dead", "flaky"} else 0

    def children(self, page: int) -> list[int]:
        """Return where a page leads, within its segment: three pages of its own, and some known elsewhere too."""
        number, segment = divmod(page, ROOTS)
        own = [child * ROOTS + segment for child in range(3 * number + 1, 3 * number + 4)]
        lots = [crc32(f"{self.seed}-{page}-{n}".encode()) for n in range(3)]
        others = [lot % (self.pages // ROOTS) * ROOTS + segment for lot in lots]
        return [child for child in own if child < self.pages] + [
            other for other in others if self.fate(other) != "unfiltered"
        ]

    @cached_property
    def reachable(self) -> set[int]:
        """All pages that a crawl comes across."""
        found, ahead = set(range(ROOTS)), list(range(ROOTS))
        while ahead:
            page = ahead.pop()
            new = set(self.children(page)) - found if self.fate(page) != "dead" else set()
            found |= new
            ahead += new
        return found

    @property
    def dead(self) -> set[int]:
        """Those that end dead."""
        return {page for page in self.reachable if self.fate(page) == "dead"}

    def reason(self, page: int) -> str:
        """Return why a page is done."""
        return "404" if self.fate(page) == "missing" else "200"

    @property
    def reasons(self) -> Counter[str]:
        """How many pages are done for which reason."""
        return Counter(self.reason(page) for page in self.reachable - self.dead)

    @property
    def fetches(self) -> int:
        """How many fetches a crawl takes that nobody kills."""
        failed = sum(map(self.failures, self.reachable))
        return failed + len(self.reachable) - len(self.dead)


class Sink(JsonlSink):
    """Says when it has flushed."""

    on_step: Callable[[str], None] = staticmethod(lambda _: None)

    async def flush(self) -> int:
        position = await super().flush()
        self.on_step(ITEMS_FLUSHED)
        return position


class Records(SqliteKeyStore):
    """Say when they have been flushed."""

    on_step: Callable[[str], None] = staticmethod(lambda _: None)

    async def flush(self) -> None:
        await super().flush()
        self.on_step(KEPT)


class Crawl:
    """One run over a folder. `fetched` hears every page that is leased and `promise` what each commit made durable."""

    def __init__(
        self,
        order: Order,
        *,
        fetched: Callable[[int], None] = lambda _: None,
        released: Callable[[int], None] = lambda _: None,
        promise: Callable[[Promise], None] = lambda _: None,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.site = Site(order.seed, order.pages)
        self.order = order
        self.chance = random.Random(f"{order.seed} {order.run}")
        self.now = T0 + order.run * RUN_S
        self.fetched, self.released, self.promise, self.on_step = fetched, released, promise, on_step
        self.held: list[Lease] = []
        self.settled = Promise()
        self.since_commit = 0

    async def run(self) -> None:
        """Crawl to the end, from wherever the folder is."""
        folder = Path(self.order.folder)
        state = StateDir(folder / "state")
        state.check_complete()
        self.frontier = frontier.embedded_frontier(
            state.frontier, POLICY, sync=self.order.sync, now=self.now, on_step=self.on_step, expected=EXPECTED
        )
        self.sink = Sink(folder / ITEMS, sync=self.order.sync)
        self.sink.on_step = self.on_step
        self.state_saver = StateSaver(self._records(state))
        try:
            if not state.description.name:
                state.describe(Description(name="made up", seeds=["http://h0.example/0"]))
            self.committer = Committer(self.frontier, [self.sink], 1e9, self.order.acks, self._committed)
            self.committer.save = self.state_saver.save
            self.operations = LocalOperations(self.frontier, self.committer.commit)
            await self.opened()
            starts = await self.committer.open_sinks()
            assert (folder / ITEMS).stat().st_size == starts[self.sink.name], "items without a commit are still there"
            if self.order.run % 2:
                await self.operations.compact()
            await self._drop_what_is_not_ours()
            await self.frontier.push([self.site.record(root) for root in range(ROOTS)])
            while await self._lease():
                await self._settle_some()
            await self.committer.finish()
            await self.ended()
        finally:
            await self.sink.close()
            await self.state_saver.close()
            await self.frontier.close()
            state.close()

    def _records(self, state: StateDir) -> KeyStore:
        if not self.order.keeps:
            return MemoryKeyStore()
        records = Records(state.records, sync=self.order.sync)
        records.on_step = self.on_step
        return records

    async def opened(self) -> None:
        """For whoever looks into the frontier before anything changes."""

    async def ended(self) -> None:
        """For whoever looks into the frontier when all is done: here, that nothing is missing, and nothing too much."""
        stats = await self.frontier.stats()
        assert (stats.queued, stats.leased, stats.delayed) == (0, 0, 0), stats
        reasons = self.site.reasons
        assert (stats.done, dict(stats.reasons)) == (reasons.total(), dict(reasons)), (stats, reasons)
        found = await self.frontier.dead(stats.dead + 1)
        dead = [(self.site.page(record), record.attempts, reason) for record, reason in found]
        expected = [(page, self.site.failures(page), "503") for page in sorted(self.site.dead)]
        assert sorted(dead) == expected, (sorted(dead), expected)
        assert stats.dead == len(dead)
        problems = self.frontier.store.verify(lambda _: None)  # who looks into it later has no sink
        assert not problems, problems

    async def _lease(self) -> bool:
        while True:
            for lease in await self.frontier.lease(CONCURRENCY - len(self.held), self.now):
                page = self.site.page(lease.record)
                forgotten = self.order.keeps and page >= ROOTS and self.state_saver.store.get(FOUND, str(page)) is None
                assert not forgotten, f"page {page} was committed without the record of it"
                self.held.append(lease)
                self.fetched(page)
            if self.held:
                return True
            ready = self.frontier.next_ready(self.now)
            if ready is None:
                return False
            self.now = max(self.now, ready)

    async def _settle_some(self) -> None:
        for _ in range(self.chance.randint(1, len(self.held))):
            lease = self.held.pop(self.chance.randrange(len(self.held)))
            await self._settle(lease)
        self.now += self.chance.random()
        if self.chance.random() < 0.05:
            await self._drop_a_segment()
        due = self.since_commit >= self.chance.randint(1, self.order.acks - CONCURRENCY)
        if due and self.since_commit:
            await self.committer.commit()

    async def _drop_a_segment(self) -> None:
        """Somebody pushes into a segment of their own, and drops it, while we crawl."""
        name = f"run {self.order.run} at {self.now}"
        await self.operations.push([msgspec.structs.replace(self.site.record(0), segment=name)])
        await self._drop_what_is_not_ours()

    async def _drop_what_is_not_ours(self) -> None:
        for segment in await self.operations.segments():
            if segment.name not in SEGMENTS and segment.state != SegmentState.DROPPED:
                assert await self.operations.drop(segment.name) == 1

    async def _settle(self, lease: Lease) -> None:
        page = self.site.page(lease.record)
        lot = self.chance.random()
        if lot < 0.05:
            assert await self.frontier.release(lease, self.now)
            self.released(page)
            return
        if lot < 0.1:
            await self._remember_host(lease.record.host)
        self.since_commit += 1
        if lease.record.attempts < self.site.failures(page):
            await self._fail(lease, page)
        else:
            await self._finish(lease, page)
        assert not await self.frontier.ack(lease, "200", (), self.now)

    async def _fail(self, lease: Lease, page: int) -> None:
        last = self.site.fate(page) == "dead" and lease.record.attempts + 1 == self.site.failures(page)
        again_at = None if last else self.now + self.site.chance(page, 20) + 1
        assert await self.frontier.nack(lease, "503", again_at, self.now)
        if last:
            self.settled.dead.append(page)

    async def _finish(self, lease: Lease, page: int) -> None:
        children = [self.site.record(child) for child in self.site.children(page)]
        for child in self.site.children(page):
            self.state_saver.store.put(FOUND, str(child), b"%d" % page)
        assert await self.frontier.ack(lease, self.site.reason(page), children, self.now)
        self.sink.write(
            self.sink.prepare({"page": page, "attempts": lease.record.attempts}),
            ItemKey(lease.record.url, lease.record.fingerprint),
        )
        self.settled.done.append(page)

    async def _remember_host(self, host: str) -> None:
        await self.frontier.block_host(host, self.now + 2.0)
        await self.frontier.set_host_facts(host, HostFacts(b"User-agent: *\n", 200, self.now), self.now)

    def _committed(self, positions: Mapping[str, int]) -> None:
        self.settled.position = positions[self.sink.name]
        self.promise(self.settled)
        self.settled = Promise()
        self.since_commit = 0
        self.on_step(COMMITTED)


class Refusing(logging.Handler):
    """A kill leaves nothing to complain about: no filter to rebuild, no file to mend."""

    def emit(self, record: logging.LogRecord) -> None:
        """Fail."""
        raise AssertionError(record.getMessage())


def killer(order: Order) -> Callable[[str], None]:
    """Return what kills this process when the step of the order comes."""
    seen: Counter[str] = Counter()

    def on_step(name: str) -> None:
        assert name in STEPS, name
        seen[name] += 1
        if name == order.step and seen[name] == order.occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def logger(path: Path) -> Callable[[bytes], None]:
    """Return what appends to a file, a line in one write: what was logged survives the process."""
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    return lambda line: os.write(handle, line + b"\n") and None


def run(order: Order) -> None:
    """Run one order in this process."""
    for (module, name), value in LIMITS.items() if order.small else ():
        assert hasattr(module, name), name
        setattr(module, name, value)
    logs = Path(order.logs)
    fetches, promises = logger(logs / FETCHES), logger(logs / PROMISES)
    crawl = Crawl(
        order,
        fetched=lambda page: fetches(b"%d %f %f" % (page, time.monotonic(), time.process_time())),
        released=lambda page: fetches(b"%d released" % page),
        promise=lambda promise: promises(msgspec.json.encode(promise)),
        on_step=killer(order),
    )
    asyncio.run(crawl.run())


def forked(order: Order) -> int:
    """Run an order in a fork. Return its exit code, or minus the signal that killed it."""
    pid = os.fork()
    if pid == 0:
        code = 1
        logging.getLogger("lycosa").addHandler(Refusing(logging.WARNING))
        logging.getLogger("lycosa.frontier").setLevel(logging.INFO)
        logging.getLogger("lycosa.frontier").addHandler(Refusing(logging.INFO))
        try:
            run(order)
            code = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            sys.stderr.flush()
            os._exit(code)
    handle = os.pidfd_open(pid)
    if not select.select([handle], [], [], order.kill_after_s)[0]:
        os.kill(pid, signal.SIGKILL)
    os.close(handle)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def serve() -> None:
    """Run orders from standard input, and answer each with a line: exit code, monotonic times of its start and end."""
    for line in sys.stdin:
        begun = time.monotonic()
        code = forked(msgspec.json.decode(line, type=Order))
        print(code, begun, time.monotonic(), flush=True)


def items(folder: Path, end: int | None = None) -> list[dict[str, Any]]:
    """Return the items of a folder up to a position; every line must be whole."""
    file = folder / ITEMS
    content = file.read_bytes()[:end] if file.exists() else b""
    assert content.endswith(b"\n") or not content
    return [msgspec.json.decode(line) for line in content.splitlines()]


def assert_complete(site: Site, folder: Path) -> None:
    """Every page that is not dead has its item exactly once."""
    found = Counter((item["page"], item["attempts"]) for item in items(folder))
    alive = site.reachable - site.dead
    expected = Counter((page, site.failures(page)) for page in alive)
    twice, missing = found - expected, expected - found
    assert (twice, missing) == (Counter(), Counter()), f"twice: {twice}, missing: {missing}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        run(msgspec.json.decode(sys.argv[1], type=Order))
    else:
        serve()
