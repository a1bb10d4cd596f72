"""The timer by which libcurl is called. libcurl sets it in a callback, where an exception would break transfers
(C2).
"""

from __future__ import annotations

import asyncio

import pytest
import uvloop

from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings


@pytest.mark.parametrize("factory", [uvloop.new_event_loop, asyncio.new_event_loop])
@pytest.mark.parametrize("first_s", [-1.0, 0.0, 0.0004, 0.5])
def test_timer_can_be_set_while_it_is_due(factory: type, first_s: float) -> None:
    """For a delay below half a millisecond uvloop returns a handle that is no timer, and has no `when()`."""

    async def scenario() -> None:
        fetcher = CurlFetcher(FetchSettings())
        fetcher._deadline = asyncio.get_running_loop().time() + first_s
        fetcher._arm()
        for timeout_ms in (1, 1000, 0, -1, 5):
            fetcher._set_timer(timeout_ms)
        await fetcher.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(scenario())


def test_earlier_timer_wins() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        fetcher = CurlFetcher(FetchSettings())
        called = asyncio.Event()
        fetcher._report_events = lambda ready: called.set()  # type: ignore[method-assign]
        fetcher._set_timer(60_000)
        fetcher._set_timer(20)
        started = loop.time()
        await asyncio.wait_for(called.wait(), 30)
        assert 0.01 < loop.time() - started < 20
        await fetcher.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
