"""Callbacks in threads (C1): their number, context, exceptions and cancellation, and the end of the threads."""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import threading
import weakref
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest

from lycosa.core.errors import BadSpider
from lycosa.crawl.middlewares.chain import SpiderChain
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.scrape import Scraper
from lycosa.crawl.spiders.spider import Spider
from lycosa.crawl.workers import threads as module
from lycosa.crawl.workers.threads import CallbackThreads, on_loop
from lycosa.http.core.request import Request

DEADLINE_S = 20.0
VARIABLE = contextvars.ContextVar("VARIABLE", default="none")


def with_threads(crawl: Any, count: int = 2) -> Any:
    async def run() -> Any:
        threads = CallbackThreads(count)
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await crawl(threads)
        finally:
            await threads.close()

    before = set(threading.enumerate())
    result = asyncio.run(run())
    assert set(threading.enumerate()) <= before
    return result


def test_a_call_runs_in_a_thread_and_does_not_block_the_loop() -> None:
    async def crawl(threads: CallbackThreads) -> str:
        ready = threading.Event()

        def callback() -> str:
            assert ready.wait(DEADLINE_S)
            return threading.current_thread().name

        running = asyncio.create_task(threads.run(callback))
        await asyncio.sleep(0)
        ready.set()  # never reached if the callback blocked the loop
        return await running

    assert with_threads(crawl) == "lycosa-callback-1"


def test_a_call_has_a_copy_of_the_context_of_its_caller() -> None:
    def callback() -> str:
        word = VARIABLE.get()
        VARIABLE.set("changed in the thread")
        return word

    async def crawl(threads: CallbackThreads) -> list[str]:
        VARIABLE.set("of the task")
        return [await threads.run(callback), await threads.run(callback), VARIABLE.get()]

    assert with_threads(crawl, 1) == ["of the task"] * 3


@pytest.mark.parametrize("error", [ValueError("v"), KeyError("k"), SystemExit(3)])
def test_exceptions_are_raised_in_the_caller(error: BaseException) -> None:
    def callback() -> None:
        raise error

    async def crawl(threads: CallbackThreads) -> str:
        try:
            await threads.run(callback)
        except BaseException as caught:
            assert caught is error
        return await threads.run(lambda: "and the thread takes the next call")

    assert with_threads(crawl, 1).startswith("and")


def test_stop_iteration_becomes_a_runtime_error() -> None:
    async def crawl(threads: CallbackThreads) -> None:
        with pytest.raises(RuntimeError, match="StopIteration"):
            await threads.run(lambda: next(iter(())))

    with_threads(crawl)


def test_threads_are_started_when_needed_up_to_their_limit() -> None:
    async def crawl(threads: CallbackThreads) -> tuple[int, int]:
        for _ in range(5):
            await threads.run(lambda: None)
        sequential = len(threads._threads)
        lock, active, active_max = threading.Lock(), 0, 0
        full = threading.Barrier(3)

        def callback() -> None:
            nonlocal active, active_max
            with lock:
                active += 1
                active_max = max(active_max, active)
            full.wait(DEADLINE_S)
            with lock:
                active -= 1

        await asyncio.gather(*(threads.run(callback) for _ in range(12)))
        return sequential, active_max

    assert with_threads(crawl, 3) == (1, 3)


def test_a_call_cancelled_before_a_thread_is_free_never_runs() -> None:
    async def crawl(threads: CallbackThreads) -> list[str]:
        started, free, calls = threading.Event(), threading.Event(), []

        def first() -> None:
            started.set()
            assert free.wait(DEADLINE_S)

        running = asyncio.create_task(threads.run(first))
        waiting = asyncio.create_task(threads.run(lambda: calls.append("cancelled")))
        await asyncio.to_thread(started.wait, DEADLINE_S)
        waiting.cancel()
        await asyncio.wait([waiting])
        free.set()
        await running
        await threads.run(lambda: calls.append("next"))
        return calls

    assert with_threads(crawl, 1) == ["next"]


def test_the_result_of_a_cancelled_call_is_dropped_and_its_thread_reused() -> None:
    async def crawl(threads: CallbackThreads) -> str:
        started, free = threading.Event(), threading.Event()

        def callback() -> str:
            started.set()
            assert free.wait(DEADLINE_S)
            return "dropped"

        running = asyncio.create_task(threads.run(callback))
        assert await asyncio.to_thread(started.wait, DEADLINE_S)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        following = asyncio.create_task(threads.run(lambda: "next"))
        await asyncio.sleep(0)
        assert not following.done()  # the only thread is busy
        free.set()
        return await following

    assert with_threads(crawl, 1) == "next"


def test_close_does_not_wait_for_calls_that_do_not_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CLOSE_GRACE_S", 0.05)
    started, free, stuck = threading.Event(), threading.Event(), []

    def callback() -> None:
        stuck.append(threading.current_thread())
        started.set()
        assert free.wait(DEADLINE_S)

    async def crawl() -> None:
        threads = CallbackThreads(2)
        running = asyncio.create_task(threads.run(callback))
        assert await asyncio.to_thread(started.wait, DEADLINE_S)
        running.cancel()
        await threads.close()

    asyncio.run(crawl())
    (thread,) = stuck
    assert "abandoning 1 callbacks that still run in threads" in caplog.text
    assert thread.is_alive()
    free.set()
    thread.join(DEADLINE_S)
    assert not thread.is_alive(), "the thread ends by itself, though the loop is closed"


STUCK = """
import asyncio, threading
from lycosa.crawl.workers import threads
threads.CLOSE_GRACE_S = 0.05
async def crawl():
    pool = threads.CallbackThreads(1)
    asyncio.ensure_future(pool.run(threading.Event().wait))
    await asyncio.sleep(0)
    await pool.close()
asyncio.run(crawl())
print("ended")
"""


def test_a_callback_that_never_ends_does_not_keep_the_process_alive() -> None:
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert done.stdout == "ended\n"


def test_idle_threads_keep_no_response_in_memory() -> None:
    class Resource:
        pass

    async def crawl(threads: CallbackThreads) -> bool:
        freed, response = threading.Event(), Resource()
        reference = weakref.ref(response, lambda _: freed.set())
        await threads.run(lambda response=response: [response])
        assert reference() is response
        del response
        return await asyncio.to_thread(freed.wait, DEADLINE_S)

    assert with_threads(crawl, 1)


class Slow(Spider):
    name = "slow"

    def parse(self, response: Response) -> Iterator[Any]:
        yield {"thread": threading.current_thread().name}
        yield on_loop(self.parse_later(response))

    async def parse_later(self, response: Response) -> dict[str, str]:
        return {"thread": threading.current_thread().name}


def test_generators_are_exhausted_in_the_thread_and_async_callbacks_run_on_the_loop() -> None:
    request = Request("http://a.example/")
    response = Response(request.url, request=request)

    async def crawl(threads: CallbackThreads) -> list[Any]:
        spider = Slow()
        scraper = Scraper(spider, SpiderChain([], spider), threads.run)
        plain = await scraper.scrape(request, response)
        later = await scraper.scrape(request.replace(callback="parse_later"), response)
        return [item["thread"] for item in (*plain.items, *later.items)]

    assert with_threads(crawl) == ["lycosa-callback-1", "MainThread", "MainThread"]


async def fetch(url: str) -> str:
    await asyncio.sleep(0)
    if url == "bad":
        raise ValueError(url)
    return f"{url} on {threading.current_thread().name} with {VARIABLE.get()}"


def test_on_loop_runs_a_coroutine_of_the_crawl() -> None:
    def callback() -> list[str]:
        with pytest.raises(ValueError, match="bad"):
            on_loop(fetch("bad"))
        return [on_loop(fetch("a")), on_loop(fetch("b"))]

    async def crawl(threads: CallbackThreads) -> list[str]:
        VARIABLE.set("context")
        return await threads.run(callback)

    assert with_threads(crawl) == ["a on MainThread with context", "b on MainThread with context"]


def test_on_loop_is_cancelled_with_its_callback() -> None:
    async def crawl(threads: CallbackThreads) -> tuple[str, bool]:
        started, caught, ended = asyncio.Event(), [], threading.Event()

        async def forever() -> None:
            started.set()
            await asyncio.Event().wait()

        def callback() -> None:
            try:
                on_loop(forever())
            except BaseException as error:
                caught.append(type(error).__name__)
            ended.set()

        running = asyncio.create_task(threads.run(callback))
        await started.wait()
        running.cancel()
        return await asyncio.to_thread(ended.wait, DEADLINE_S), caught

    assert with_threads(crawl) == (True, ["CancelledError"])


def test_on_loop_outside_a_callback_thread_is_refused() -> None:
    async def crawl() -> None:
        coroutine: Coroutine[Any, Any, str] = fetch("a")
        with pytest.raises(BadSpider, match="elsewhere, write await"):
            on_loop(coroutine)

    asyncio.run(crawl())
