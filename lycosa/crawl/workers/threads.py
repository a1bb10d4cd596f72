"""Threads for blocking callbacks (`callback_mode = "thread"`): at most `count`, started when needed.

    threads = CallbackThreads(8)
    results = await threads.run(lambda: collect_now(call, name))

A call runs with the context variables of its caller. It must also exhaust the callback's generator: no user code may
run on the event loop.

A call that is cancelled before a thread is free never starts. A call that has started cannot be stopped: `run` returns
at once, the result is dropped, and the thread is busy until the call ends. Threads are daemons and do not keep the
process alive.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future as ThreadFuture
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from lycosa.core.errors import BadSpider

log = logging.getLogger(__name__)

T = TypeVar("T")

THREADS_DEFAULT = 8

CLOSE_GRACE_S = 5.0
"""Maximum seconds that the end of a crawl waits for running callbacks."""


class _ThreadCall:
    """One call for a thread. `inner` is the future that `on_loop` waits for; it is cancelled with the call."""

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop) -> None:
        self.call = call
        self.loop = loop
        self.context = contextvars.copy_context()
        self.outcome: asyncio.Future[Any] = loop.create_future()
        self.inner: ThreadFuture[Any] | None = None
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        if self.inner is not None:
            self.inner.cancel()


_current = threading.local()
"""`call` is the `_ThreadCall` that the current thread runs, or None."""


class CallbackThreads:
    """Runs plain functions for one event loop."""

    def __init__(self, count: int = THREADS_DEFAULT) -> None:
        self._free = asyncio.Semaphore(count)
        self._calls: SimpleQueue[_ThreadCall | None] = SimpleQueue()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._running: set[_ThreadCall] = set()
        self._all_done = asyncio.Event()
        self._all_done.set()

    async def run(self, call: Callable[[], T]) -> T:
        await self._free.acquire()  # released when the thread is free, so at most `count` calls are queued
        thread_call = _ThreadCall(call, asyncio.get_running_loop())
        self._running.add(thread_call)
        self._all_done.clear()
        self._ensure_thread()
        self._calls.put(thread_call)
        try:
            return await thread_call.outcome  # type: ignore[no-any-return]
        finally:
            thread_call.cancel()

    async def close(self) -> None:
        """Abandon calls that take longer than CLOSE_GRACE_S."""
        for thread_call in self._running:
            thread_call.cancel()
        for _ in self._threads:
            self._calls.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._all_done.wait()
        if self._running:
            log.warning("abandoning %d callbacks that still run in threads", len(self._running))
            return
        for thread in self._threads:
            thread.join()

    def _ensure_thread(self) -> None:
        if self._idle:
            self._idle -= 1
            return
        name = f"lycosa-callback-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (thread_call := self._calls.get()) is not None:
            result, error = None, None
            _current.call = thread_call
            try:
                result = thread_call.context.run(thread_call.call)
            except BaseException as raised:  # noqa: BLE001  raised again on the loop
                error = raised
            finally:
                _current.call = None
            with suppress(RuntimeError):  # the loop is closed
                thread_call.loop.call_soon_threadsafe(self._on_done, thread_call, result, error)
            del thread_call, result, error  # otherwise an idle thread would keep a response in memory

    def _on_done(self, thread_call: _ThreadCall, result: Any, error: BaseException | None) -> None:
        self._idle += 1
        self._free.release()
        self._running.discard(thread_call)
        if not self._running:
            self._all_done.set()
        if thread_call.outcome.done():  # cancelled
            return
        if isinstance(error, StopIteration):  # a future does not accept a StopIteration
            error = RuntimeError(f"a callback raised StopIteration({error.value!r})")
        if error is None:
            thread_call.outcome.set_result(result)
        else:
            thread_call.outcome.set_exception(error)


def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """From a callback in a thread, run a coroutine on the crawl's loop and return its result.

    Raises the coroutine's exception, `concurrent.futures.CancelledError` if the visit of the page was cancelled, and
    `BadSpider` outside a thread.
    """
    thread_call: _ThreadCall | None = getattr(_current, "call", None)
    if thread_call is None:
        coroutine.close()
        raise BadSpider(
            "this works only in callbacks that run in a thread (callback_mode = 'thread'); elsewhere, write await"
        )
    inner = asyncio.run_coroutine_threadsafe(coroutine, thread_call.loop)
    thread_call.inner = inner
    if thread_call.cancelled:  # `cancel` may have been called before `inner` was set
        inner.cancel()
    try:
        return inner.result()
    finally:
        thread_call.inner = None
