"""Threads for callbacks that block (`callback_mode = "thread"`): at most `count` of them, made when they are needed.

    threads = CallbackThreads(8)
    results = await threads.run(lambda: collect_now(call, name))

What runs there has the context variables of its caller; what it raises is raised by `run`. The call should consume the
callback's generator as well, so that nothing of the user's is left to run on the loop.

A call that is cancelled while it waits for its turn never begins. One that has begun cannot be stopped: `run` ends at
once, what the call makes is forgotten, and its thread is free again when it ends. `close` waits for such calls for a
grace; the threads are daemons, so that one that never ends does not keep the process alive.

Inside such a thread, `on_loop(self.fetch(request))` runs a coroutine on the loop and waits for it.
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
"""After the crawl has ended, callbacks under way get so long; then their threads are left behind."""


class _Call:
    """One call for a thread. What `on_loop` waits for is cancelled with it."""

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


_here = threading.local()
"""`call`: what this thread runs."""


class CallbackThreads:
    """Runs plain functions in at most `count` threads, for one event loop."""

    def __init__(self, count: int = THREADS_DEFAULT) -> None:
        self._free = asyncio.Semaphore(count)
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._idle = 0
        self._threads: list[threading.Thread] = []
        self._under_way: set[_Call] = set()
        self._all_done = asyncio.Event()
        self._all_done.set()

    async def run(self, call: Callable[[], T]) -> T:
        """Return what the call returns in a thread. Raises what it raises."""
        await self._free.acquire()  # given back when the thread is free: so no more than `count` are ever queued
        one = _Call(call, asyncio.get_running_loop())
        self._under_way.add(one)
        self._all_done.clear()
        self._need_thread()
        self._calls.put(one)
        try:
            return await one.outcome  # type: ignore[no-any-return]
        finally:
            one.cancel()

    async def close(self) -> None:
        """End the threads. Calls that outlast the grace are named, and left behind."""
        for one in self._under_way:
            one.cancel()
        for _ in self._threads:
            self._calls.put(None)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_GRACE_S):
                await self._all_done.wait()
        if self._under_way:
            log.warning("%d callbacks in threads have not ended; they are left behind", len(self._under_way))
            return
        for thread in self._threads:
            thread.join()

    def _need_thread(self) -> None:
        if self._idle:
            self._idle -= 1
            return
        name = f"lycosa-callback-{len(self._threads) + 1}"
        thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (one := self._calls.get()) is not None:
            result, error = None, None
            _here.call = one
            try:
                result = one.context.run(one.call)
            except BaseException as raised:  # noqa: BLE001  it is raised again, on the loop
                error = raised
            finally:
                _here.call = None
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                one.loop.call_soon_threadsafe(self._ended, one, result, error)
            del one, result, error  # until the next call comes, nothing is held

    def _ended(self, one: _Call, result: Any, error: BaseException | None) -> None:
        self._idle += 1
        self._free.release()
        self._under_way.discard(one)
        if not self._under_way:
            self._all_done.set()
        if one.outcome.done():  # cancelled
            return
        if isinstance(error, StopIteration):  # a future refuses it, as generators do
            error = RuntimeError(f"a callback raised StopIteration({error.value!r})")
        if error is None:
            one.outcome.set_result(result)
        else:
            one.outcome.set_exception(error)


def on_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run the coroutine on the crawl's loop, from a callback in a thread, and return its result.

    Raises what it raises, `CancelledError` when the callback is no longer waited for, and `BadSpider` elsewhere.
    """
    one: _Call | None = getattr(_here, "call", None)
    if one is None:
        coroutine.close()
        raise BadSpider(
            "this works in callbacks that run in a thread (callback_mode = 'thread'); elsewhere, write await"
        )
    inner = asyncio.run_coroutine_threadsafe(coroutine, one.loop)
    one.inner = inner
    if one.cancelled:  # between the two lines above
        inner.cancel()
    try:
        return inner.result()
    finally:
        one.inner = None
