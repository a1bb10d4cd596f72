"""The start requests of a run, queued beside the crawl: a `start` that reads a million lines, or waits for more, holds
nothing up. What an earlier run knows is dropped by the frontier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from lycosa.app.crawl.spec import Crew, Member
from lycosa.core.errors import BadSpider
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.middlewares.chain import Method
from lycosa.crawl.spiders.spider import start_requests
from lycosa.frontier.core.model import UrlRecord
from lycosa.http.core.request import Request

SEEDS_BATCH = 1000
FLUSH_EVERY_S = 0.1
"""So long a start request waits for others to be queued with."""

BEGIN_S = 0.2
"""The crawl begins so long after the first start requests at the latest: most have yielded them all by then."""


class Run(Protocol):
    """What the start requests need of their run."""

    async def begin(self, member: Member, first: Request) -> str:
        """The first request of a spider is there. Return the segment of the run."""
        ...

    async def take(self, seeds: list[UrlRecord]) -> None:
        """Queue these."""
        ...


class Seeding:
    """Reads what `start` of each member yields. `needed`: it is an error when one yields nothing."""

    def __init__(self, crew: Crew, begins: Mapping[str, Sequence[Method]], run: Run, *, needed: bool) -> None:
        self._crew = crew
        self._begins = begins
        self._run = run
        self._needed = needed
        self._batch: list[UrlRecord] = []
        self._taken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._flushing: asyncio.Task[None] | None = None
        self._taking = asyncio.Lock()
        self._error: Exception | None = None

    @property
    def is_over(self) -> bool:
        """Whether all of them are queued."""
        return self._task is not None and self._task.done()

    async def begin(self) -> None:
        """Return when the first ones are queued. Raises `BadSpider`, or whatever went wrong until then."""
        self._task = asyncio.create_task(self._all())
        self._flushing = asyncio.create_task(self._flush_until_cancelled())
        first = asyncio.create_task(self._taken.wait())
        try:
            await asyncio.wait({self._task, first}, return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait({self._task}, timeout=BEGIN_S)
        except asyncio.CancelledError:
            await self.stop()
            raise
        finally:
            first.cancel()
        if self._task.done():
            self._flushing.cancel()
            if error := self._failure():
                raise error

    def then(self, done: Callable[[], None], failed: Callable[[BaseException], None]) -> None:
        """Say what to call when it is over."""

        def over(_: asyncio.Task[None]) -> None:
            assert self._flushing is not None
            self._flushing.cancel()
            if error := self._failure():
                failed(error)
            done()

        assert self._task is not None
        self._task.add_done_callback(over)

    async def stop(self) -> None:
        """Read no more; what was read is queued, or will be read again by the next run."""
        tasks = [task for task in (self._task, self._flushing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _all(self) -> None:
        for member in self._crew.members:
            found = await self._of(member)
            await self._flush()
            if self._needed and not found:
                what = f"{type(member.spider).__name__} has nothing to start with"
                raise BadSpider(user_errors.check_start(member.spider) or f"{what}: write start_urls in the class")

    async def _of(self, member: Member) -> bool:
        segment = None
        naming = member.target.naming
        async for request in start_requests(member.spider, self._begins.get(naming.spider, ())):
            if segment is None:
                segment = await self._run.begin(member, request)
            self._batch.append(to_record(request, member.spider, naming=naming, segment=segment))
            if len(self._batch) >= SEEDS_BATCH:
                await self._flush()
        return segment is not None

    async def _flush(self) -> None:
        async with self._taking:  # whoever reads on, or is done, waits for the batch before
            if self._batch:
                batch, self._batch = self._batch, []
                await self._run.take(batch)
                self._taken.set()

    async def _flush_until_cancelled(self) -> None:
        try:
            while True:
                await asyncio.sleep(FLUSH_EVERY_S)
                await self._flush()
        except Exception as error:  # noqa: BLE001  whoever waits for the seeds raises it
            self._error = error
            assert self._task is not None
            self._task.cancel()

    def _failure(self) -> BaseException | None:
        """Return what went wrong, if anything."""
        assert self._task is not None
        return self._error or (None if self._task.cancelled() else self._task.exception())
