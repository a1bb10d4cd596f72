"""A crawl inside a program: on a running event loop, for example in a notebook.

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
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, nullcontext
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lycosa.app.crawl.crawl_run import CrawlRun
from lycosa.app.crawl.frontier import expire_finished, open_frontier, open_in_memory, temporary_folder
from lycosa.app.crawl.parts import items_location, sinks_of, state_of
from lycosa.app.crawl.run import rejoin_when_lost
from lycosa.app.crawl.spec import Crawlable, CrawlSpec, crawl_spec
from lycosa.app.crawl.wiring import open_run
from lycosa.config import Settings, load
from lycosa.core.errors import UsageError
from lycosa.core.public import public
from lycosa.crawl.events.stats import Snapshot, Summary
from lycosa.crawl.items.item_channel import ItemChannel
from lycosa.crawl.spiders.routes import Handler, RoutedSpider, Routes
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.server import serve
from lycosa.frontier.state_dir import StateDir
from lycosa.storage.ports import Sink
from lycosa.storage.sinks.memory import MemorySink

NO_FOLDER = Path("/dev/null")
"""Stands for a folder without settings files: only the program's own settings count."""

USAGE = "Crawl(URL), Crawl([URL, ...]) or Crawl(SpiderClass)"


@public
class Crawl:
    """One crawl of start URLs or spiders, used with `async with`.

    Keyword arguments are settings, by Lycosa's or Scrapy's names. Without `state` the crawl is only in memory. With
    `state=DIR` it is as durable as `lycosa crawl`, and the same program resumes it. With `frontier=URL` it is a worker
    of a shared crawl. `spider_args` become attributes of the spider. Raises `UsageError`.
    """

    def __init__(
        self, target: Crawlable | str = (), *, spider_args: Mapping[str, Any] | None = None, **settings: Any
    ) -> None:
        if not isinstance(target, (Iterable, type, Spider)):
            raise UsageError(f"nothing to crawl in {target!r:.60}: {USAGE}")
        self._target = [target] if isinstance(target, str) else target
        self._arguments = dict(spider_args or {})
        self._keywords = settings
        self._settings({}, "Crawl(...)")  # report bad settings here, not only when the crawl runs
        self._routes = Routes()
        self._used = self._stopped = self._begun = False
        self._run: CrawlRun | None = None
        self._task: asyncio.Task[None] | None = None
        self.items: list[Any] = []
        """The items of `run`, if no output is set."""
        self.summary: Summary | None = None
        """How the crawl ended; None before its end."""

    def route(self, name: str | None = None, *, match: str | None = None) -> Callable[[Handler], Handler]:
        """Register the decorated function as a callback that requests can name.

        The callback also gets the pages whose URL matches the glob `match`. A callback without `name` and `match` gets
        the pages that match no glob.
        """
        if callable(name):
            raise UsageError(f"write @crawl.route() with parentheses above {getattr(name, '__name__', 'the function')}")
        return self._routes.add(name, match)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        if self._task is None:
            return
        if self._run is not None and not self._task.done():
            self._run.stop(at_once=True)  # nobody would receive the items of visits in progress
        if not self._begun:
            self._task.cancel()  # the task may hang, for example in `open_spider`
            await asyncio.wait([self._task])
            if self._task.cancelled():
                return
        await self._task

    async def run(self) -> Summary:
        """Crawl until no work is left. Return the summary; the items are in `items`, or in the output."""
        self._use()
        memory = MemorySink()
        self.items = memory.items
        await self._crawl(memory, None)
        assert self.summary is not None
        return self.summary

    async def stream(self) -> AsyncIterator[Any]:
        """Crawl, and yield items as they are scraped. The crawl pauses until the caller requests the next item."""
        self._use()
        channel = ItemChannel()
        self._task = asyncio.create_task(self._crawl(None, channel))
        self._task.add_done_callback(lambda _task: channel.close())
        while True:
            try:
                item = await channel.receive()
            except StopAsyncIteration:
                break
            yield item
        await self._task

    async def stop(self) -> None:
        """End the crawl: start no more visits. Those in progress have 5 s to finish."""
        self._stopped = True
        if self._run is not None:
            self._run.stop()

    async def snapshot(self) -> Snapshot:
        """Return the current or final state of the crawl. Raises `UsageError` before it has started."""
        if self.summary is not None:
            return self.summary.snapshot
        if self._run is None:
            raise UsageError("the crawl has not started: loop over crawl.stream(), or await crawl.run()")
        return await self._run.snapshot()

    def _use(self) -> None:
        if self._used:
            raise UsageError("this Crawl was used already: create another one")
        self._used = True

    async def _crawl(self, memory: Sink | None, channel: ItemChannel | None) -> None:
        crawl = self._spec()
        with temporary_folder() if crawl.settings.state is None else nullcontext() as folder:
            await rejoin_when_lost(lambda rejoins: self._crawl_once(crawl, folder, memory, channel, rejoins=rejoins))
        await expire_finished(crawl, finished=self.summary is not None and self.summary.finished)

    async def _crawl_once(
        self, crawl: CrawlSpec, folder: Path | None, memory: Sink | None, channel: ItemChannel | None, *, rejoins: bool
    ) -> None:
        settings = crawl.settings
        async with AsyncExitStack() as stack:
            state = StateDir(folder / "state" if folder is not None else state_of(settings, crawl.target))
            stack.callback(state.close)
            if folder is None or settings.frontier:
                opened = await open_frontier(stack, crawl, state, rejoins=rejoins)
            else:
                opened = open_in_memory(stack, crawl.policy)
            # Unlike the command, a program without an output does not write items to standard output.
            sinks = sinks_of(settings, state.items, crawl.target.name) if items_location(settings) else []
            if not sinks and memory is not None:
                sinks = [memory]
            run = self._run = await stack.enter_async_context(open_run(crawl, state, opened, sinks, channel))
            opened.set_reporter(run.reporter)
            if folder is None:
                await stack.enter_async_context(serve(state.socket, run.operations))
            await run.start_seeding()
            self._begun = True
            if self._stopped:
                run.stop()
            with run.no_rejoin_after_interrupt():
                has_run = await run.run(signals=False)
                summary = await run.summary(nothing_to_do=not has_run)
                self.summary = replace(summary, shared=await opened.totals(run.reporter))

    def _spec(self) -> CrawlSpec:
        if self._routes:
            urls = self._target
            if not isinstance(urls, (list, tuple)) or not all(isinstance(url, str) for url in urls):
                raise UsageError("routes are only for a crawl of URLs: a spider has its own callbacks")
            return crawl_spec(self._settings({}), RoutedSpider([str(url) for url in urls], self._routes))
        if isinstance(self._target, (list, tuple)) and not self._target:
            raise UsageError(f"nothing to crawl: {USAGE}")
        spiders = self._target if isinstance(self._target, (list, tuple)) else [self._target]
        custom = [getattr(each, "custom_settings", None) or {} for each in spiders]
        settings = [self._settings(each) for each in custom]
        return crawl_spec(settings if len(settings) > 1 else settings[0], self._target, self._arguments)

    def _settings(self, custom: Mapping[str, object], place: str = "custom_settings") -> Settings:
        chosen = {**custom, **self._keywords}
        settings = load({}, spider_settings=chosen, environ={}, folder=NO_FOLDER, spider_place=place)
        if settings.processes > 1:
            raise UsageError("a Crawl runs in this process: for several processes use lycosa crawl --processes N")
        if settings.frontier and settings.overwrite:
            raise UsageError("a shared crawl cannot be started afresh: give another crawl_name, state and output")
        if settings.frontier and settings.output and settings.state is None:
            raise UsageError("a Crawl with frontier and output needs a state, too, to keep the position in the output")
        return settings
