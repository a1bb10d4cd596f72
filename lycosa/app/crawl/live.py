"""A crawl inside a program: in any running loop, in a notebook.

async with Crawl("https://quotes.example/") as crawl:

    @crawl.route()
    async def page(response):
        yield {"title": response.css("title::text").get()}
        for request in response.follow_all(css="li.next a"):
            yield request

    async for item in crawl.stream():
        print(item)
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.app.crawl.job import Job
from lycosa.app.crawl.parts import items_place, sinks_of, state_of
from lycosa.app.crawl.spec import Crew, crew_of
from lycosa.app.crawl.wiring import wired
from lycosa.config import Settings, load
from lycosa.core.errors import UsageError
from lycosa.core.public import public
from lycosa.crawl.events.stats import Snapshot, Summary
from lycosa.crawl.items.item_channel import ItemChannel
from lycosa.crawl.spiders.routes import Handler, RoutedSpider, Routes
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.server import serve
from lycosa.frontier.state_dir import StateDir
from lycosa.infra.clock import Clock
from lycosa.storage.ports import Sink
from lycosa.storage.sinks.memory import MemorySink

NOWHERE = Path("/dev/null")
"""No settings files are read: what a program says is all that counts."""

WANTED = "Crawl(URL), Crawl([URL, ...]) or Crawl(SpiderClass)"

Started = str | Sequence[str] | type[Spider] | Spider | Sequence[type[Spider]]


@public
class Crawl:
    """One crawl of start URLs or spiders, used with `async with`.

    Keywords are settings, by our names or Scrapy's. Without `state` nothing is kept and nothing is written; with
    `state=DIR` the crawl is durable like that of the command, and the same program resumes it. `spider_args` become
    attributes of the spider. Raises `UsageError` for what is wrong with any of it.
    """

    def __init__(self, target: Started = (), *, spider_args: Mapping[str, Any] | None = None, **settings: Any) -> None:
        if not isinstance(target, (Iterable, type, Spider)):
            raise UsageError(f"nothing to crawl in {target!r:.60}: {WANTED}")
        self._target = [target] if isinstance(target, str) else target
        self._arguments = dict(spider_args or {})
        self._given = settings
        self._settings({}, "Crawl(...)")  # what is wrong is told here
        self._routes = Routes()
        self._used = self._stopped = self._begun = False
        self._job: Job | None = None
        self._running: asyncio.Task[None] | None = None
        self.items: list[Any] = []
        """The items of a crawl that was `run` without an output."""
        self.summary: Summary | None = None
        """How the crawl ended."""

    def route(self, name: str | None = None, *, match: str | None = None) -> Callable[[Handler], Handler]:
        """Decorate a callback: of requests that name it, of URLs that match a glob, or of all others."""
        if callable(name):
            raise UsageError(f"write @crawl.route() with brackets above {getattr(name, '__name__', 'the function')}")
        return self._routes.add(name, match)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end()

    async def run(self) -> Summary:
        """Crawl until nothing is left. Return how it ended; the items are in `items`, or in the output."""
        self._use()
        kept = MemorySink()
        self.items = kept.items
        await self._crawl(kept, None)
        assert self.summary is not None
        return self.summary

    async def stream(self) -> AsyncIterator[Any]:
        """Crawl, and yield the items as the pages come. The crawl waits while nobody asks for the next one."""
        self._use()
        channel = ItemChannel()
        self._running = asyncio.create_task(self._crawl(None, channel))
        self._running.add_done_callback(lambda _task: channel.close())
        while True:
            try:
                item = await channel.receive()
            except StopAsyncIteration:
                break
            yield item
        await self._running

    async def stop(self) -> None:
        """End the crawl: lend no more, and let what is under way end."""
        self._stopped = True
        if self._job is not None:
            self._job.stop()

    async def snapshot(self) -> Snapshot:
        """Return the state of the crawl, of one that has ended the last. Raises `UsageError` before it has begun."""
        if self.summary is not None:
            return self.summary.snapshot
        if self._job is None:
            raise UsageError("the crawl has not begun: loop over crawl.stream(), or await crawl.run()")
        return await self._job.snapshot()

    def _use(self) -> None:
        if self._used:
            raise UsageError("this Crawl was used already: make another one")
        self._used = True

    async def _end(self) -> None:
        self._stopped = True
        if self._running is None:
            return
        if self._job is not None and not self._running.done():
            self._job.stop(at_once=True)  # nobody takes the items of what is under way
        if not self._begun:
            self._running.cancel()  # what waits before the crawl begins (`open_spider`, say) has nobody to wait for
            await asyncio.wait([self._running])
            if self._running.cancelled():
                return
        await self._running

    async def _crawl(self, kept: Sink | None, channel: ItemChannel | None) -> None:
        crew = self._crew()
        settings = crew.settings
        async with AsyncExitStack() as stack:
            durable = settings.state is not None
            folder = "" if durable else stack.enter_context(tempfile.TemporaryDirectory(prefix="lycosa-"))
            state = StateDir(state_of(settings, crew.target) if durable else Path(folder) / "state")
            stack.callback(state.close)
            output = sinks_of(settings, state, crew.target.name) if items_place(settings) else []
            sinks = output if output or kept is None else [kept]
            policy, now = crew.policy, Clock().now()
            frontier: LocalFrontier[Any] = memory_frontier(policy)
            if durable:
                state.check_complete()
                frontier = embedded_frontier(state.frontier, policy, sync=settings.sync, now=now)
            stack.push_async_callback(frontier.close)
            opened = OpenFrontier.own(frontier)
            job = self._job = await stack.enter_async_context(wired(crew, state, opened, sinks, channel))
            if durable:
                await stack.enter_async_context(serve(state.socket, job.operations))
            await job.push_seeds()
            self._begun = True
            if self._stopped:
                job.stop()
            idle = await job.nothing_to_do()
            await (job.end() if idle else job.run(signals=False))
            self.summary = await job.summary(nothing_to_do=idle)

    def _crew(self) -> Crew:
        if self._routes:
            urls = self._target
            if not isinstance(urls, (list, tuple)) or not all(isinstance(url, str) for url in urls):
                raise UsageError("routes are for a crawl of URLs: a spider has its callbacks itself")
            return crew_of(self._settings({}), RoutedSpider([str(url) for url in urls], self._routes))
        if isinstance(self._target, (list, tuple)) and not self._target:
            raise UsageError(f"nothing to crawl: {WANTED}")
        spiders = self._target if isinstance(self._target, (list, tuple)) else [self._target]
        custom = [getattr(each, "custom_settings", None) or {} for each in spiders]
        settings = [self._settings(each) for each in custom]
        return crew_of(settings if len(settings) > 1 else settings[0], self._target, self._arguments)

    def _settings(self, custom: Mapping[str, object], place: str = "custom_settings") -> Settings:
        given = {**custom, **self._given}
        settings = load({}, spider_settings=given, environ={}, folder=NOWHERE, spider_place=place)
        if settings.processes > 1:
            raise UsageError("a Crawl lives in this process: several are for lycosa crawl --processes N")
        if settings.frontier:
            raise UsageError("a Crawl has a frontier of its own: workers that share one are for lycosa worker")
        return settings
