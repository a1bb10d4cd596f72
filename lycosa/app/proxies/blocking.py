"""A pool of proxies for threads, with an event loop in a separate thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager
from threading import Lock, Thread
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from lycosa.app.proxies.leasing import LeasedProxy, LeaseOptions, Pool
from lycosa.core.errors import StateError
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool, ProxyView, TargetView

T = TypeVar("T")
CLOSED = "the pool is closed"


class BlockingPool:
    """A pool that threads can share, with the methods of `Pool` as blocking calls.

    Once it is closed, calls in progress and later calls raise `StateError`.
    """

    def __init__(self, loop_thread: LoopThread, pool: Pool) -> None:
        self._thread = loop_thread
        self._pool = pool

    @overload
    def lease(
        self, target: str, n: None = None, **options: Unpack[LeaseOptions]
    ) -> AbstractContextManager[LeasedProxy]: ...

    @overload
    def lease(
        self, target: str, n: int, **options: Unpack[LeaseOptions]
    ) -> AbstractContextManager[list[LeasedProxy]]: ...

    def lease(self, target: str, n: int | None = None, **options: Unpack[LeaseOptions]) -> Any:
        return self._lease(target, n, **options)

    @contextmanager
    def _lease(self, target: str, n: int | None, **options: Unpack[LeaseOptions]) -> Iterator[Any]:
        block: Any = self._pool.lease(target, n, **options)
        leased = self._thread.call(block.__aenter__())
        try:
            yield leased
        except BaseException as error:
            self._thread.call(block.__aexit__(type(error), error, error.__traceback__))
            raise
        self._thread.call(block.__aexit__(None, None, None))

    def add(self, *proxies: Proxy | str) -> int:
        return self._thread.call(self._pool.add(*proxies))

    def remove(self, *keys: str) -> int:
        return self._thread.call(self._pool.remove(*keys))

    def ban(self, target: str, key: str, until: float | None = None, reason: str = "by hand") -> bool:
        return self._thread.call(self._pool.ban(target, key, until, reason))

    def unban(self, target: str, key: str) -> bool:
        return self._thread.call(self._pool.unban(target, key))

    def proxies(self, target: str | None = None) -> list[ProxyView]:
        return self._thread.call(self._pool.proxies(target))

    def targets(self) -> list[TargetView]:
        return self._thread.call(self._pool.targets())


class PoolOpening:
    """What `lycosa.pool.open_pool` returns: `async with` gives a `Pool`, and `with` a `BlockingPool`."""

    def __init__(self, open_: Callable[[], Coroutine[Any, Any, tuple[ProxyPool, Pool]]]) -> None:
        self._open = open_
        self._stack = AsyncExitStack()
        self._thread: LoopThread | None = None

    async def __aenter__(self) -> Pool:
        port, pool = await self._open()
        self._stack.push_async_callback(port.close)
        return pool

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def __enter__(self) -> BlockingPool:
        self._thread = LoopThread()
        try:
            return BlockingPool(self._thread, self._thread.call(self.__aenter__()))
        except BaseException:
            self._thread.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._thread is not None
        try:
            self._thread.call(self._stack.aclose())
        finally:
            self._thread.close()


class LoopThread:
    """Runs coroutines for other threads, in an event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="lycosa-pool", daemon=True)
        self._lock = Lock()
        self._is_closed = False
        self._thread.start()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine. It is cancelled if the caller is interrupted.

        Raises `StateError` if the loop is closed before or during the call.
        """
        with self._lock:
            if self._is_closed:
                coroutine.close()
                raise StateError(CLOSED)
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except CancelledError:
            raise StateError(CLOSED) from None
        except BaseException:
            future.cancel()  # has no effect on a coroutine that has raised
            raise

    def close(self) -> None:
        """Cancel the running coroutines, and end the thread."""
        with self._lock:
            self._is_closed = True
        asyncio.run_coroutine_threadsafe(_cancel_others(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
