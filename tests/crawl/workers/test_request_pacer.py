"""The delay of a host between requests that several processes send (C5)."""

from __future__ import annotations

import asyncio

import pytest

from lycosa.crawl.workers import request_pacer
from lycosa.crawl.workers.request_pacer import RequestPacer, StartInterval

HOST, ADDRESS = "http://a.example:80", "192.0.2.1"


class Clock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_next_request_waits_for_the_report_of_the_previous_start() -> None:
    async def run() -> None:
        clock = Clock()
        pacer, intervals = RequestPacer(clock), [StartInterval(HOST, 0.01)]
        first = await pacer.acquire(intervals)
        second = asyncio.create_task(pacer.acquire(intervals))
        await asyncio.sleep(0.05)
        assert not second.done(), "the start of the first one is unknown"
        clock.now = 200.0
        first.report(199.995)
        await asyncio.sleep(0)
        assert not second.done(), "too early"
        clock.now = 200.01
        (await second).release()
        assert await asyncio.wait_for(pacer.acquire(intervals), 20.0), "a request that never started delays no other"

    asyncio.run(run())


def test_a_corrected_start_delays_the_next_request() -> None:
    async def run() -> None:
        clock = Clock()
        pacer, intervals = RequestPacer(clock), [StartInterval(HOST, 0.01)]
        (await pacer.acquire(intervals)).report(100.0)
        pacer.correct(intervals, 100.5)
        clock.now = 100.2
        task = asyncio.create_task(pacer.acquire(intervals))
        await asyncio.sleep(0.05)
        assert not task.done()
        clock.now = 100.52
        await task

    asyncio.run(run())


def test_a_start_that_is_never_reported_delays_the_next_one_until_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run() -> None:
        monkeypatch.setattr(request_pacer, "REPORT_TIMEOUT_S", 0.05)
        pacer, intervals = RequestPacer(Clock()), [StartInterval(HOST, 5.0)]
        first = await pacer.acquire(intervals)
        second = await asyncio.wait_for(pacer.acquire(intervals), 20.0)
        third = asyncio.create_task(pacer.acquire(intervals))
        first.release()
        await asyncio.sleep(0)
        assert not third.done(), "the second one has the lock"
        second.release()
        (await third).release()

    asyncio.run(run())


def test_a_request_cancelled_while_it_waits_delays_neither_host_nor_address() -> None:
    async def run() -> None:
        pacer = RequestPacer(Clock())
        first = await pacer.acquire([StartInterval(HOST, 5.0), StartInterval(ADDRESS, 5.0)])
        waits = asyncio.create_task(pacer.acquire([StartInterval("other", 1.0), StartInterval(ADDRESS, 5.0)]))
        await asyncio.sleep(0)
        waits.cancel()
        await asyncio.gather(waits, return_exceptions=True)
        first.release()
        for key in (HOST, "other", ADDRESS):
            (await asyncio.wait_for(pacer.acquire([StartInterval(key, 5.0)]), 20.0)).release()

    asyncio.run(run())
