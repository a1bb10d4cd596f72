"""When the engine sleeps, until when, and what wakes it (F3, C7)."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from typing import Any

import pytest

from lycosa.crawl.engine.engine import EngineLimits
from lycosa.crawl.engine.records import to_record
from lycosa.crawl.spiders.spider import Spider
from lycosa.frontier.core.states import Policy
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from tests.crawl.engine_setup import EngineSetup, build_engine
from tests.servers.tree import grow

DAY_S = 86_400.0
WAKE_MAX_S = 10.0
POLICY = Policy(robots=False)


class Delayed(Spider):
    """Starts with requests that may be due later."""

    name = "delayed"

    def __init__(self, requests: list[Request]) -> None:
        super().__init__()
        self.requests = requests
        self.seen: list[tuple[float, str]] = []

    async def start(self) -> Any:
        for request in self.requests:
            yield request

    def parse(self, response: Any) -> None:
        self.seen.append((time.time(), response.url[-1]))


def after(url: str, seconds: float) -> Request:
    return Request(url, not_before=time.time() + seconds)


async def wait_until_idle(crawl: EngineSetup) -> float:
    """Wait until the engine is idle. Return the time until which it sleeps."""
    while not (snapshot := await crawl.engine.snapshot()).waiting_until:  # noqa: ASYNC110  as an observer does
        await asyncio.sleep(0.01)
    return snapshot.waiting_until


def test_the_engine_sleeps_until_the_next_due_time():
    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            spider = Delayed([after(url + "3", DAY_S), after(url + "2", 1.8), after(url + "1", 0.6)])
            crawl = await build_engine(stack, spider, POLICY, EngineLimits(exit_when_idle=True))
            await crawl.engine.run(crawl.operations)
            seen = {page: at for at, page in spider.seen}
            assert (len(spider.seen), set(seen)) == (2, {"1", "2"})
            for request in spider.requests[1:]:
                assert 0 <= seen[request.url[-1]] - request.not_before < WAKE_MAX_S
            assert crawl.engine.idle_until == pytest.approx(spider.requests[0].not_before, abs=0.01)

    with grow(5) as tree:
        asyncio.run(scenario(tree.url[:-1]))


def test_a_push_from_outside_and_a_stop_wake_the_engine():
    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            spider = Delayed([after(url + "1", DAY_S)])
            crawl = await build_engine(stack, spider, POLICY)
            running = asyncio.create_task(crawl.engine.run(crawl.operations))
            assert await wait_until_idle(crawl) == pytest.approx(spider.requests[0].not_before, abs=0.01)
            pushed_at = time.time()
            await crawl.operations.push([to_record(Request(url + "2"), spider)])
            snapshot = await crawl.engine.snapshot()
            await asyncio.wait_for(crawl.engine.wait_for_activity(snapshot), WAKE_MAX_S)
            await wait_until_idle(crawl)
            assert [page for _, page in spider.seen] == ["2"]
            assert spider.seen[0][0] - pushed_at < WAKE_MAX_S
            crawl.engine.stop()
            await asyncio.wait_for(running, WAKE_MAX_S)
            assert (await crawl.frontier.stats()).delayed == 1

    with grow(5) as tree:
        asyncio.run(scenario(tree.url[:-1]))


def test_a_due_time_is_noticed_after_the_machine_was_suspended(monkeypatch):
    """Timers stop while a machine is suspended, so the engine reads the clock regularly."""
    monkeypatch.setattr("lycosa.crawl.engine.engine.CLOCK_CHECK_S", 0.2)
    monkeypatch.setattr("lycosa.infra.clock.CHECK_S", 0.05)

    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            slept = 0.0
            spider = Delayed([after(url + "1", DAY_S)])
            crawl = await build_engine(stack, spider, POLICY, clock=Clock(lambda: time.time() + slept))
            running = asyncio.create_task(crawl.engine.run(crawl.operations))
            await wait_until_idle(crawl)
            slept = DAY_S
            await asyncio.wait_for(running, WAKE_MAX_S)
            assert len(spider.seen) == 1

    with grow(2) as tree:
        asyncio.run(scenario(tree.url[:-1]))


def test_the_engine_waits_for_a_retry_but_not_for_a_delayed_request(monkeypatch):
    monkeypatch.setattr("lycosa.crawl.engine.engine.IDLE_AFTER_S", 0.1)

    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            spider = Delayed([Request(url + "1"), after(url + "2", DAY_S)])
            crawl = await build_engine(stack, spider, POLICY, EngineLimits(exit_when_idle=True))
            now = time.time()
            (lease,) = await crawl.frontier.lease(1, now)
            await crawl.frontier.nack(lease, "503", now + 1.0, now)
            await crawl.engine.run(crawl.operations)
            assert [page for _, page in spider.seen] == ["1"]
            assert crawl.engine.idle_until == pytest.approx(spider.requests[1].not_before, abs=0.01)

    with grow(5) as tree:
        asyncio.run(scenario(tree.url[:-1]))


def test_the_engine_waits_for_a_blocked_host(monkeypatch):
    monkeypatch.setattr("lycosa.crawl.engine.engine.IDLE_AFTER_S", 0.1)

    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            spider = Delayed([Request(url + "1")])
            crawl = await build_engine(stack, spider, POLICY, EngineLimits(exit_when_idle=True))
            record = to_record(spider.requests[0], spider)
            await crawl.frontier.block_host(record.host, time.time() + 1.0)
            await crawl.engine.run(crawl.operations)
            assert (len(spider.seen), crawl.engine.idle_until) == (1, 0.0)

    with grow(2) as tree:
        asyncio.run(scenario(tree.url[:-1]))


def test_run_calls_more_when_no_request_is_left():
    async def scenario(url: str) -> None:
        async with AsyncExitStack() as stack:
            spider = Delayed([Request(url + "1")])
            crawl = await build_engine(stack, spider, POLICY)
            batches = [[Request(url + "2"), Request(url + "3")], []]

            async def more(now: float) -> int:
                return await crawl.frontier.push([to_record(request, spider) for request in batches.pop(0)])

            await crawl.engine.run(crawl.operations, more=more)
            assert sorted(page for _, page in spider.seen) == ["1", "2", "3"]
            assert batches == []

    with grow(5) as tree:
        asyncio.run(scenario(tree.url[:-1]))
