"""One step of the benchmark of shared frontiers, in the process that is measured. `bench/shared.py` starts it.

    batch    push `batch_size`, lease and ack as many, as `bench/cycle.py` does with the embedded frontier
    crawl    as the engine does: `batch_size` leases at a time, each held as long as a fetch; its ack pushes children
    seen     fill the set of seen URLs: all are pushed, leased, acked and committed
    pending  push only: many records on few hosts
    hosts    push only: one record on each host

What happens on the server is read from its INFO before and after. The result goes to a file.
"""

from __future__ import annotations

import asyncio
import gc
import json
import random
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import redis
import uvloop
from cycle import GC_THRESHOLD
from running import progress
from workload import BATCH, Page, Workload

from lycosa.core.url import fingerprint
from lycosa.frontier.core.model import RECORD_VERSION, Lease, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership

CHUNK = 100_000
"""Records made ready at a time, with the clocks stopped."""

COMMIT_ACKS, COMMIT_EVERY_S = 256, 0.1
FETCH_S = 0.02, 0.06
"""How long a page is held in a crawl: evenly drawn between these."""

FEEDERS = 2
"""Frontiers that fill the set of seen URLs at the same time: one prepares while the server works for the other."""

FED = 2_000
SEEN_HOSTS = 100


@dataclass(frozen=True, slots=True)
class Step:
    """What to do: `urls` URLs in all, of which `known` are stored already; at `marks` URLs the memory is measured."""

    what: str
    redis: str
    result: str
    urls: int
    batch_size: int = BATCH
    delay_s: float = 0.0
    hosts: int = 0
    known: int = 0
    marks: tuple[int, ...] = ()
    limit_s: float = 0.0
    partitions: int = 1


class Server:
    """What the server reports of itself: the differences between begin and end, summed up."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url)
        self.spent: dict[str, float] = {}
        self._before: dict[str, float] = {}

    def begin(self) -> None:
        self._before = self._now()

    def end(self) -> None:
        for name, value in self._now().items():
            self.spent[name] = self.spent.get(name, 0) + value - self._before[name]

    def memory(self) -> int:
        return int(self._client.info("memory")["used_memory"])

    def _now(self) -> dict[str, float]:
        info, calls = self._client.info("everything"), self._client.info("commandstats")
        return {
            "server_cpu_s": info["used_cpu_user"] + info["used_cpu_sys"],
            "in_bytes": info["total_net_input_bytes"],
            "out_bytes": info["total_net_output_bytes"],
            "trips": sum(calls.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval")),
        }


class Clocks:
    """Wall and CPU seconds of this process, and the cost of the server, in the measured sections."""

    def __init__(self, url: str) -> None:
        self.server = Server(url)
        self.wall_s = self.cpu_s = 0.0

    def __enter__(self) -> None:
        self.server.begin()
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def __exit__(self, *_: object) -> None:
        self.cpu_s += time.process_time() - self._cpu
        self.wall_s += time.perf_counter() - self._wall
        self.server.end()

    def figures(self, urls: int) -> dict[str, float]:
        return {"urls": urls, "wall_s": self.wall_s, "cpu_s": self.cpu_s, **self.server.spent}


def record_of(page: Page) -> UrlRecord:
    return UrlRecord(RECORD_VERSION, fingerprint("GET", page.url), page.url, page.host)


def new_record(number: int, hosts: int) -> UrlRecord:
    """Return the record of a new page; pages are spread evenly over the hosts."""
    origin = f"https://www.shop-{number % hosts}.example"
    return record_of(Page(f"{origin}/catalogue/item-{number}.html", f"{origin}:443"))


def batches_of(first: int, last: int, hosts: int, batch_size: int = BATCH) -> Iterator[list[UrlRecord]]:
    """Yield new pages, some at a time."""
    for start in range(first, last, batch_size):
        yield [new_record(number, hosts) for number in range(start, min(start + batch_size, last))]


def zipf(urls: int) -> Iterator[list[UrlRecord]]:
    """Yield the batches of the frontier benchmark: 40 % duplicates, many hosts."""
    for batch in Workload(urls).batches():
        yield [record_of(page) for page in batch.pages]


async def join(step: Step, name: str = "bench") -> RedisFrontier:
    policy = Policy(robots=False, delay_s=step.delay_s, concurrency_per_host=1_000_000)
    ahead = step.batch_size if step.what == "crawl" else 0
    member, parts = Membership(name, ""), step.partitions
    return await redis_frontier(step.redis, "bench", policy, member, print, partitions=parts, ahead=ahead)


async def batch(step: Step) -> dict[str, Any]:
    """Push, lease, ack; a commit as often as in a crawl."""
    frontier, clocks = await join(step), Clocks(step.redis)
    batches = zipf(step.urls)
    done = acks = 0
    while chunk := list(islice(batches, CHUNK // BATCH)):
        several = step.batch_size // BATCH
        prepared = [list(chain.from_iterable(chunk[at : at + several])) for at in range(0, len(chunk), several)]
        with clocks:
            commit_at = 0.0
            for records in prepared:
                await frontier.push(records)
                now = time.time()
                leases = await frontier.lease(step.batch_size, now)
                for lease in leases:
                    await frontier.ack(lease, "200", (), now)
                acks += len(leases)
                done += len(leases)
                if acks >= COMMIT_ACKS or now >= commit_at:
                    await frontier.commit({})
                    acks, commit_at = 0, now + COMMIT_EVERY_S
    with clocks:
        while leases := await frontier.lease(step.batch_size, time.time()):
            for lease in leases:
                await frontier.ack(lease, "200", (), time.time())
            done += len(leases)
        await frontier.commit({})
    check(done, step.urls)
    await frontier.close()
    return clocks.figures(done)


class Crawl:
    """Leases URLs as the engine does: whenever a visit is over, and when the frontier says that more may be ready."""

    def __init__(self, frontier: RedisFrontier, places: int, children: Callable[[], list[UrlRecord]]) -> None:
        self._frontier = frontier
        self._places = places
        self._children = children
        self._chance = random.Random(7)
        self._tasks: set[asyncio.Task[None]] = set()
        self._rung = asyncio.Event()
        self._changed, self._full = asyncio.Event(), asyncio.Event()
        self._acks = self.done = 0

    async def run(self, urls: int) -> None:
        committing = asyncio.create_task(self._commit())
        while self.done < urls:
            self._rung.clear()
            now = time.time()
            for lease in await self._frontier.lease(self._places - len(self._tasks), now):
                task = asyncio.create_task(self._visit(lease))
                self._tasks.add(task)
                task.add_done_callback(self._over)
            due = self._frontier.next_ready(now) if len(self._tasks) < self._places else None
            wait_s = None if due is None else max(0.0, due - time.time())
            try:
                async with asyncio.timeout(wait_s):
                    await self._rung.wait()
            except TimeoutError:
                pass
        committing.cancel()
        await self._frontier.commit({})

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        task.result()
        self._rung.set()

    async def _visit(self, lease: Lease) -> None:
        self._frontier.report_start(lease.record.host, time.time())
        await asyncio.sleep(self._chance.uniform(*FETCH_S))
        children = self._children()
        known = self._frontier.known("", [each.fingerprint for each in children])
        new = [each for each in children if each.fingerprint not in known]
        await self._frontier.ack(lease, "200", new, time.time())
        self.done += 1
        self._acks += 1
        self._changed.set()
        if self._acks >= COMMIT_ACKS:
            self._full.set()

    async def _commit(self) -> None:
        while True:
            await self._changed.wait()
            try:
                async with asyncio.timeout(COMMIT_EVERY_S):
                    await self._full.wait()
            except TimeoutError:
                pass
            self._acks = 0
            self._changed.clear()
            self._full.clear()
            await self._frontier.commit({})


async def crawl(step: Step) -> dict[str, Any]:
    """Crawl. As many URLs as `hosts`, or without `hosts` a tenth of all, are pushed first; the others are children."""
    frontier, clocks = await join(step), Clocks(step.redis)
    batches = list(batches_of(0, step.urls, step.hosts) if step.hosts else zipf(step.urls))
    first = max(1, (step.hosts or step.urls // 10) // BATCH)
    for records in batches[:first]:
        await frontier.push(records)
    rest = deque(each for records in batches[first:] for each in records)
    share = len(rest) / (step.urls - await queued(frontier)) if step.hosts == 0 else 1.0
    owed = 0.0

    def children() -> list[UrlRecord]:
        nonlocal owed
        owed += max(1.0, share)
        taken = [rest.popleft() for _ in range(min(int(owed), len(rest)))]
        owed -= int(owed)
        return taken

    driver = Crawl(frontier, step.batch_size, children)
    with clocks:
        await driver.run(step.urls)
    await frontier.close()
    return clocks.figures(driver.done)


async def queued(frontier: RedisFrontier) -> int:
    return (await frontier.stats()).queued


async def seen(step: Step) -> dict[str, Any]:
    """Push, lease, ack and commit URLs with two frontiers at once; report the memory at each mark."""
    server, clocks = Server(step.redis), Clocks(step.redis)
    frontiers = [await join(step, f"feeder{each}") for each in range(FEEDERS)]
    base, sizes, done = server.memory(), {}, step.known
    until = time.perf_counter() + step.limit_s if step.limit_s else float("inf")
    for mark in sorted(mark for mark in step.marks if mark > step.known):
        while done < mark and time.perf_counter() < until:
            most = min(done + CHUNK, mark)
            batches = list(batches_of(done, most, SEEN_HOSTS, FED))
            with clocks:
                await asyncio.gather(*(feed(frontier, batches) for frontier in frontiers))
            done = most
        if done == mark:
            sizes[str(mark)] = server.memory()
            progress(f"    {done:,} seen: {sizes[str(mark)] / done:.1f} bytes each")
    for frontier in frontiers:
        await frontier.close()
    return clocks.figures(done - step.known) | {"sizes": sizes, "base": base, "done": done}


async def feed(frontier: RedisFrontier, batches: list[list[UrlRecord]]) -> None:
    while batches:
        records = batches.pop()
        await frontier.push(records)
        leases = await frontier.lease(len(records), time.time())
        for lease in leases:
            await frontier.ack(lease, "200", (), time.time())
        await frontier.commit({})
    while leases := await frontier.lease(FED, time.time()):
        for lease in leases:
            await frontier.ack(lease, "200", (), time.time())
        await frontier.commit({})


async def pushed(step: Step) -> dict[str, Any]:
    """Push only, spread over `hosts` hosts."""
    frontier, server, clocks = await join(step), Server(step.redis), Clocks(step.redis)
    before = server.memory()
    for records in batches_of(0, step.urls, step.hosts, step.batch_size):
        with clocks:
            await frontier.push(records)
    await frontier.commit({})
    figures = clocks.figures(step.urls) | {"bytes": server.memory() - before}
    await feed(frontier, [])
    figures["rest"] = server.memory() - before
    await frontier.close()
    return figures


def check(done: int, urls: int) -> None:
    if done != urls:
        sys.exit(f"{done:,} of {urls:,} URLs were leased and acked")


STEPS: Mapping[str, Callable[[Step], Any]] = {
    "batch": batch,
    "crawl": crawl,
    "seen": seen,
    "pending": pushed,
    "hosts": pushed,
}


def main() -> None:
    arguments = json.loads(sys.argv[1])
    step = Step(**arguments | {"marks": tuple(arguments["marks"])})
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        figures = runner.run(STEPS[step.what](step))
    Path(step.result).write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
