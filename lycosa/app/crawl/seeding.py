"""Queue the start requests of a run while the crawl runs.

A spider's `start` may read a million lines or wait for input. The frontier drops requests that an earlier run has
queued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lycosa.app.crawl.spec import CrawlSpec, SpiderSpec
from lycosa.core.errors import BadSpider
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.middlewares.chain import Method
from lycosa.crawl.spiders.spider import start_requests
from lycosa.frontier.core.model import UrlRecord
from lycosa.http.core.request import Request

SEEDS_BATCH = 1000
FLUSH_EVERY_S = 0.1
"""Maximum seconds that a start request waits to be queued together with others."""

FIRST_SEEDS_S = 0.2
"""Maximum seconds between the first batch and the start of the crawl. Most spiders have yielded all seeds by then."""


class SeedQueue(Protocol):
    """The part of a run that accepts start requests."""

    async def segment_for(self, spec: SpiderSpec, first: Request) -> str:
        """Return the segment of the run. `first` is the first start request of a spider."""
        ...

    async def push_seeds(self, seeds: list[UrlRecord]) -> None: ...


class Seeder:
    """Queues the requests of each spider's `start`. With `required`, a spider without any is an error."""

    def __init__(
        self, crawl: CrawlSpec, process_starts: Mapping[str, Sequence[Method]], queue: SeedQueue, *, required: bool
    ) -> None:
        self._crawl = crawl
        self._process_starts = process_starts
        self._queue = queue
        self._required = required
        self._batch: list[UrlRecord] = []
        self._first_pushed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flush_task: asyncio.Task[None] | None = None
        self._flush_lock = asyncio.Lock()
        self._flush_error: Exception | None = None

    @property
    def is_done(self) -> bool:
        return self._task is not None and self._task.done()

    async def start(self) -> None:
        """Start reading, and return soon after the first batch is queued.

        Raises `BadSpider`, or any other error that occurs until then.
        """
        self._task = asyncio.create_task(self._read_all())
        self._flush_task = asyncio.create_task(self._flush_until_cancelled())
        first = asyncio.create_task(self._first_pushed.wait())
        try:
            await asyncio.wait({self._task, first}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({self._task}, timeout=FIRST_SEEDS_S)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            first.cancel()
        if self._task.done():
            self._flush_task.cancel()
            if error := self._error():
                raise error

    def on_done(self, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """Call `done` when all start requests are queued. After an error, call `failed(error)`, then `done`."""

        def finish(_: asyncio.Task[None]) -> None:
            assert self._flush_task is not None
            self._flush_task.cancel()
            if error := self._error():
                failed(error)
            done()

        assert self._task is not None
        self._task.add_done_callback(finish)

    async def stop(self) -> None:
        """Stop reading. The next run reads the remaining requests."""
        tasks = [task for task in (self._task, self._flush_task) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _read_all(self) -> None:
        for spec in self._crawl.spiders:
            has_seeds = await self._read(spec)
            await self._flush()
            if self._required and not has_seeds:
                problem = f"{type(spec.spider).__name__} has nothing to start with: write start_urls in the class"
                raise BadSpider(user_errors.check_start(spec.spider) or problem)

    async def _read(self, spec: SpiderSpec) -> bool:
        segment = None
        naming = spec.target.naming
        async for request in start_requests(spec.spider, self._process_starts.get(naming.spider, ())):
            if segment is None:
                segment = await self._queue.segment_for(spec, request)
            self._batch.append(to_record(request, spec.spider, naming=naming, segment=segment))
            if len(self._batch) >= SEEDS_BATCH:
                await self._flush()
        return segment is not None

    async def _flush(self) -> None:
        # The lock also makes the reader wait while the timer pushes a batch, which may wait for disk space.
        async with self._flush_lock:
            if self._batch:
                batch, self._batch = self._batch, []
                await self._queue.push_seeds(batch)
                self._first_pushed.set()

    async def _flush_until_cancelled(self) -> None:
        try:
            while True:
                await asyncio.sleep(FLUSH_EVERY_S)
                await self._flush()
        except Exception as error:  # noqa: BLE001  raised by `start`, or passed to `failed`
            self._flush_error = error
            assert self._task is not None
            self._task.cancel()

    def _error(self) -> BaseException | None:
        assert self._task is not None
        return self._flush_error or (None if self._task.cancelled() else self._task.exception())
