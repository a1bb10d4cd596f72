"""The worker processes of a crawl, which the engine uses as one visitor.

The worker with the fewest running visits gets the next one. When a worker dies, the pages that it was visiting are
suspect. After DEATHS_MAX such deaths, a page is visited by a worker that visits nothing else, so that no other page
becomes suspect with it. If ALONE_DEATHS_MAX workers die while they visit only this page, the page is dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.crawl.engine.verdict import Deferred, Failed
from lycosa.crawl.engine.visit import Outcome
from lycosa.crawl.workers.request_pacer import PendingStart, RequestPacer
from lycosa.crawl.workers.worker import CrawlParts, WorkerHandle
from lycosa.frontier.core.model import Lease
from lycosa.infra.rpc.connection import Message

DEATHS_MAX = 3

ALONE_DEATHS_MAX = 2

SUSPECTS_MAX = 10_000

WORKER_DIED_REPEATEDLY = "its worker process died repeatedly"


class WorkerPool:
    """The workers of one crawl. `fail` is called with the error that ends the crawl."""

    def __init__(self, crawl: CrawlParts, fail: Callable[[BaseException], None]) -> None:
        self._crawl = crawl
        self._pacer = RequestPacer(crawl.clock.now)
        self._workers: list[WorkerHandle] = []
        self._ready: list[WorkerHandle] = []
        self._changed = asyncio.Event()
        self._isolation = asyncio.Lock()
        self._deaths: dict[int, int] = {}
        self.fail = fail
        crawl.cookies.send = self.broadcast

    def add(self, kill: Callable[[], None]) -> WorkerHandle:
        """Add a worker, which receives broadcasts from now on."""
        worker = WorkerHandle(self._crawl, self._pacer, self, kill)
        self._workers.append(worker)
        return worker

    def on_ready(self, worker: WorkerHandle) -> None:
        self._ready.append(worker)
        self._changed.set()

    def on_lost(self, worker: WorkerHandle) -> None:
        self._workers.remove(worker)
        if worker in self._ready:
            self._ready.remove(worker)
        self._changed.set()

    def on_change(self) -> None:
        self._changed.set()

    def broadcast(self, message: Message, source: WorkerHandle | None = None) -> None:
        for worker in self._workers:
            if worker is not source:
                worker.connection.send(message)

    @property
    def memory_bytes(self) -> int:
        """The total of the workers' last reports."""
        return sum(worker.memory_bytes for worker in self._workers)

    async def visit(self, lease: Lease) -> Outcome:
        intervals = self._crawl.intervals(lease.record.host)
        start = await self._pacer.acquire(intervals) if intervals else None
        try:
            if self._deaths.get(lease.record.fingerprint, 0) >= DEATHS_MAX:
                async with self._isolation:  # one suspect at a time, because several could reserve all workers
                    return await self._visit_alone(lease, start)
            return await self._visit(await self._least_loaded(), lease, start)
        finally:
            if start is not None:
                start.release()
            self._changed.set()

    async def wait_ready(self, count: int) -> None:
        while len(self._ready) < count:
            await self._wait_for_change()

    def outcome_of_death(self, lease: Lease, *, alone: bool) -> Outcome:
        """The page is deferred, or dead after too many worker deaths."""
        page = lease.record.fingerprint
        deaths = self._deaths[page] = self._deaths.pop(page, 0) + 1  # `pop` moves the page to the end
        if len(self._deaths) > SUSPECTS_MAX:
            del self._deaths[next(iter(self._deaths))]
        if alone and deaths >= DEATHS_MAX + ALONE_DEATHS_MAX:
            return Failed(WORKER_DIED_REPEATEDLY)
        return Deferred(self._crawl.clock.now())

    async def _visit(self, worker: WorkerHandle, lease: Lease, start: PendingStart | None) -> Outcome:
        outcome = await worker.visit(lease, start)
        task = asyncio.current_task()  # a task of the engine, which settles the lease before the task ends
        assert task is not None
        task.add_done_callback(lambda done: _settle(worker, lease, done))
        return outcome

    async def _visit_alone(self, lease: Lease, start: PendingStart | None) -> Outcome:
        while True:
            worker = await self._least_loaded()
            worker.alone = True
            try:
                while len(worker) and not worker.disconnected.is_set():
                    await self._wait_for_change()
                if not worker.disconnected.is_set():
                    return await self._visit(worker, lease, start)
            finally:
                worker.alone = False
                self._changed.set()

    async def _least_loaded(self) -> WorkerHandle:
        while True:
            free = [worker for worker in self._ready if worker.is_free]
            if free:
                return min(free, key=len)
            await self._wait_for_change()

    async def _wait_for_change(self) -> None:
        self._changed.clear()
        await self._changed.wait()


def _settle(worker: WorkerHandle, lease: Lease, done: asyncio.Task[None]) -> None:
    if not done.cancelled() and done.exception() is None:
        worker.settle(lease.token)
