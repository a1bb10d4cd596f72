"""One step of the frontier benchmark, in the process that is measured. `bench/frontier.py` starts it.

    cycle    push, lease, ack, commit, until every URL is archived; then the process kills itself with a batch under way
    pending  push only, commit; then the process kills itself
    open-done, open-pending    open the state that the step before has left, take a first lease, close
    drain    open the state, lease and ack all its URLs, close

Only the calls of the frontier are timed: between them, pages are made ready in chunks, with the clocks stopped. The
garbage collector is set as in a crawl. The result goes to a file, progress to standard error.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import os
import pstats
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import uvloop
from workload import BATCH, Batch, Workload

GC_THRESHOLD = 20_000
"""As `lycosa.app.crawl.workers.GC_THRESHOLD`; a test compares them."""

CHUNK = 100
"""Number of batches that are made ready at a time: few enough not to count in the measured memory."""

SECTION_S = 0.5
"""The longest time between two readings of the clocks."""

SAY_EVERY_S = 5.0
PARTS = 10
PROFILE_LINES = 40


class BadPeer(Exception):
    """The peer did not do its task."""


class Peer(Protocol):
    """A frontier in `bench/peers/frontier_*.py`. `SAFE`: after kill -9 it has exactly the committed URLs, at once."""

    SAFE: bool

    def __init__(self, folder: Path, *, sync: bool) -> None: ...
    async def open(self) -> None: ...
    def prepare(self, pages: Sequence[Any]) -> Any: ...
    async def push(self, batch: Any) -> int: ...
    async def lease(self, limit: int, now: float) -> list[Any]: ...
    async def ack(self, leases: list[Any], now: float) -> None: ...
    async def commit(self) -> None: ...
    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Step:
    """What to do. `urls` URLs are to be pushed, `known` URLs are in the store; `limit_s` ends a step early, 0 never."""

    what: str
    module: str
    sync: bool
    folder: str
    result: str
    urls: int
    known: int = 0
    turn: int = 0
    limit_s: float = 0.0
    commit_acks: int = 256
    commit_every_s: float = 0.1
    profile: bool = False


class Meter:
    """Clocks that run only inside `running`. After each such section, the speed and the memory are sampled."""

    def __init__(self, step: Step) -> None:
        self._step = step
        self._profile = cProfile.Profile() if step.profile else None
        self._said = time.monotonic()
        self.count = 0
        """Number of URLs pushed, or drained: the speed is this number per second."""
        self.wall_s = self.cpu_s = 0.0
        self._until = 0.0
        self.samples: list[tuple[int, float]] = []
        self.peak_mb = anonymous_mb()

    @contextmanager
    def running(self) -> Iterator[None]:
        count, wall, cpu = self.count, time.perf_counter(), time.process_time()
        left = self._step.limit_s - self.wall_s if self._step.limit_s else SECTION_S
        self._until = wall + min(SECTION_S, left)
        if self._profile:
            self._profile.enable()
        yield
        if self._profile:
            self._profile.disable()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        self.wall_s += wall
        self.cpu_s += cpu
        if self.count > count:
            self.samples.append((self.count - count, wall))
        self.peak_mb = max(self.peak_mb, anonymous_mb())
        self._say()

    def on(self) -> bool:
        """Whether the section may go on."""
        return time.perf_counter() < self._until

    @property
    def cut(self) -> bool:
        """Whether the time is used up."""
        return 0 < self._step.limit_s <= self.wall_s

    def _say(self) -> None:
        elapsed = time.monotonic() - self._said
        if elapsed < SAY_EVERY_S or not self.samples:
            return
        self._said += elapsed
        count, wall = self.samples[-1]
        speed = f"{self.count / self.wall_s:9,.0f}/s, now {count / wall:9,.0f}/s"
        print(f"    {self._step.what:8}{self.count:13,} {speed} {self.peak_mb:7,.0f} MB", file=sys.stderr, flush=True)

    def figures(self) -> dict[str, Any]:
        if self._profile:
            pstats.Stats(self._profile, stream=sys.stderr).sort_stats("tottime").print_stats(PROFILE_LINES)
        return {
            "count": self.count,
            "wall_s": self.wall_s,
            "cpu_s": self.cpu_s,
            "rates": rates(self.samples),
            "peak_mb": self.peak_mb,
        }


def rates(samples: Sequence[tuple[int, float]]) -> list[float]:
    """Return the speed of each tenth of the run. The tenths have equal counts of URLs, as far as the samples allow."""
    total = sum(count for count, _ in samples)
    counts, walls, before = [0] * PARTS, [0.0] * PARTS, 0
    for count, wall in samples:
        part = min(PARTS - 1, PARTS * (before + count // 2) // max(1, total))
        counts[part] += count
        walls[part] += wall
        before += count
    return [count / wall for count, wall in zip(counts, walls, strict=True) if count]


async def cycle(peer: Peer, step: Step) -> dict[str, Any]:
    """Push, lease, ack, commit; drain; return the cost. An uncommitted batch is under way at the end."""
    workload, meter = Workload(step.urls), Meter(step)
    began, commit_at = time.time() - time.perf_counter(), 0.0
    new = done = acks = 0
    for ready in chunks(peer, workload.batches()):
        while ready and not meter.cut:
            with meter.running():
                while ready and meter.on():
                    batch, prepared = ready.pop()
                    fresh = await peer.push(prepared)
                    now = began + time.perf_counter()
                    leases = await peer.lease(BATCH, now)
                    await peer.ack(leases, now)
                    acks += len(leases)
                    if acks >= step.commit_acks or now >= commit_at:
                        await peer.commit()
                        done, acks, commit_at = done + acks, 0, now + step.commit_every_s
                    if fresh != batch.new:
                        raise BadPeer(f"{fresh} URLs of a batch counted as new, but {batch.new} are")
                    new += fresh
                    meter.count += BATCH
        if meter.cut:
            break
    cut = meter.cut
    with meter.running():
        while leases := await peer.lease(BATCH, time.time()):
            await peer.ack(leases, time.time())
            acks += len(leases)
        await peer.commit()
    if (done := done + acks) != new:
        raise BadPeer(f"{done:,} of {new:,} URLs were leased and acked")
    figures = meter.figures() | {"urls": new, "cut": cut, "disk": disk_bytes(step.folder)}
    await peer.push(peer.prepare(workload.further(step.turn).pages))
    await peer.lease(BATCH, time.time())
    return figures


async def pending(peer: Peer, step: Step) -> dict[str, Any]:
    """Push URLs without leasing any. Commit after as many pushed URLs as a commit of the cycle has acks."""
    meter = Meter(step)
    pushed = 0
    for ready in chunks(peer, Workload(step.urls).unique()):
        while ready and not meter.cut:
            with meter.running():
                while ready and meter.on():
                    _, prepared = ready.pop()
                    fresh = await peer.push(prepared)
                    meter.count += fresh
                    pushed += fresh
                    if pushed >= step.commit_acks:
                        await peer.commit()
                        pushed = 0
        if meter.cut:
            break
    cut = meter.cut
    with meter.running():
        await peer.commit()
    return meter.figures() | {"urls": meter.count, "cut": cut, "disk": disk_bytes(step.folder)}


async def drain(peer: Peer, step: Step) -> dict[str, Any]:
    """Lease and ack all URLs. None of them may be missing after kill -9 and two openings of the state."""
    meter = Meter(step)
    acks, more = 0, True
    while more and not meter.cut:
        with meter.running():
            while more and meter.on():
                now = time.time()
                leases = await peer.lease(BATCH, now)
                await peer.ack(leases, now)
                acks += len(leases)
                meter.count += len(leases)
                more = bool(leases)
                if acks >= step.commit_acks or not more:
                    await peer.commit()
                    acks = 0
    if peer.SAFE and not more and meter.count != step.known:
        raise BadPeer(f"{meter.count:,} of {step.known:,} pending URLs are left after kill -9")
    return meter.figures() | {"cut": more}


async def first_lease(peer: Peer, step: Step, began: float) -> dict[str, Any]:
    """Take a first lease, of a pending URL or of a batch pushed now if all are done. Check which URLs are known."""
    opened_s = time.perf_counter() - began
    workload = Workload(step.urls)
    leases = await peer.lease(BATCH, time.time())
    left = 0
    if all_done := step.what == "open-done":
        left = len(leases)
        await peer.push(peer.prepare(workload.further(step.turn).pages))
        leases = await peer.lease(BATCH, time.time())
    figures = {"open_s": opened_s, "lease_s": time.perf_counter() - began, "leases": len(leases), "left": left}
    if all_done:
        await peer.ack(leases, time.time())
        figures["forgotten"] = await peer.push(peer.prepare(workload.last(step.known).pages))
        await peer.commit()
    if peer.SAFE and (not leases or left or figures.get("forgotten")):
        raise BadPeer(f"wrong leases or forgotten URLs after reopening: {len(leases)} leases, {figures}")
    return figures | {"disk": disk_bytes(step.folder)}


async def run(step: Step) -> None:
    peer: Peer = import_module(step.module).Peer(Path(step.folder), sync=step.sync)
    base_mb, began = anonymous_mb(), time.perf_counter()
    await peer.open()
    if step.what.startswith("open"):
        figures = await first_lease(peer, step, began)
    else:
        figures = await {"cycle": cycle, "pending": pending, "drain": drain}[step.what](peer, step)
    write(step, figures | {"base_mb": base_mb})
    if step.what in {"cycle", "pending"}:  # before anything is closed, also by the garbage collector
        os.kill(os.getpid(), signal.SIGKILL)
    await peer.close()


def write(step: Step, figures: dict[str, Any]) -> None:
    Path(step.result).write_text(json.dumps(figures))


def chunks(peer: Peer, batches: Iterator[Batch]) -> Iterator[list[tuple[Batch, Any]]]:
    """Yield lists of batches that are made ready, in reverse order: `pop` takes the first batch."""
    while chunk := [(batch, peer.prepare(batch.pages)) for batch in islice(batches, CHUNK)]:
        chunk.reverse()
        yield chunk


def anonymous_mb() -> float:
    """Return the anonymous memory of this process, without mapped files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise LookupError("RssAnon")


def disk_bytes(folder: str) -> int:
    """Return the bytes of the blocks that the files occupy on the disk, not the lengths of the files."""
    return sum(path.stat().st_blocks * 512 for path in Path(folder).rglob("*"))


def main() -> None:
    step = Step(**json.loads(sys.argv[1]))
    sys.path.insert(0, str(Path(__file__).parent / "peers"))
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(run(step))
        except BadPeer as problem:
            sys.exit(f"{step.module}: {problem}")


if __name__ == "__main__":
    main()
