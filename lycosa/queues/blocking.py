"""The calls of `queue.Queue`, made of four steps that a store does at once: offer, take, finish, wait.

A step never blocks. One that cannot be done now returns None and, with `arm`, leaves word that somebody waits; `_wait`
then sleeps until it may be worth another try. So no store has a loop of its own, and none can lose a wake-up: what
happened since `_heard` was asked ends the wait at once.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from queue import Empty, Full
from time import monotonic
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from lycosa.core.errors import UsageError
from lycosa.queues.ports import QueueLease

WAIT_MAX_S = 3600.0
"""A longer wait is made of several."""

COUNT_MAX = 1 << 62
"""Items of a queue."""

Done = TypeVar("Done")


class Taken(NamedTuple):
    """What came out of the store. `id` is what that knows it by; `attempts` counts leases that ended without an ack."""

    id: Any
    item: Any
    attempts: int


def checked_bound(maxsize: object) -> int:
    """Return a `maxsize` that a store can keep. Raises `UsageError`."""
    if type(maxsize) is not int or abs(maxsize) > COUNT_MAX:
        raise UsageError(f"maxsize={maxsize!r:.40}: write a whole number, 0 for no bound")
    return maxsize


class BlockingQueue(ABC):
    """See `queues.ports.Queue`."""

    lazy = False
    """With True `maxsize` is a mark, not a limit: what is put together goes in together while fewer items wait."""

    @property
    @abstractmethod
    def maxsize(self) -> int:
        """The number of items it holds at most; no bound at 0 or below."""

    @property
    @abstractmethod
    def unfinished_tasks(self) -> int:
        """Items that were put and not yet reported done."""

    @abstractmethod
    def qsize(self) -> int:
        """Return the number of items that can be had now."""

    @abstractmethod
    def task_done(self, count: int = 1) -> None:
        """Report got items as done. Raises `ValueError` when there were not so many."""

    @abstractmethod
    def shutdown(self, immediate: bool = False) -> None:
        """Take no more items; with `immediate` drop those that wait, too. Blocked calls raise `ShutDown`."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is leased and leave."""

    @abstractmethod
    def _pack(self, item: Any) -> Any:
        """Return the item in the form that is stored. Raises `TypeError`."""

    @abstractmethod
    def _offer(self, packed: list[Any], arm: bool) -> bool | None:
        """Store all, or nothing without `_room_for` them. Raises `ShutDown`, `ValueError` if there never will be."""

    @abstractmethod
    def _take(self, limit: int, lend: bool, arm: bool) -> list[Taken] | None:
        """Remove or lend the next items. Raises `ShutDown` when there are none and never will be."""

    @abstractmethod
    def _finished(self, arm: bool) -> bool | None:
        """True when no task is unfinished."""

    @abstractmethod
    def _ack(self, taken: Taken) -> None:
        """Forget a lent item. Raises `ValueError` when it is not lent to us any more."""

    @abstractmethod
    def _nack(self, taken: Taken) -> None:
        """Put a lent item back in its place. Raises `ValueError` likewise."""

    @abstractmethod
    def _heard(self) -> int:
        """Return a number that changes with every wake-up."""

    @abstractmethod
    def _wait(self, heard: int, timeout_s: float) -> None:
        """Sleep until a wake-up, at once if there was one after `heard`, or until the time is over."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Store an item, waiting at most `timeout` seconds for room. Raises `Full`, `ShutDown`, `TypeError`."""
        self.put_many((item,), block, timeout)

    def put_many(self, items: Iterable[Any], block: bool = True, timeout: float | None = None) -> None:
        """Store all items in one step, or none: one transaction is faster than many."""
        packed = [self._pack(item) for item in items]
        if block and timeout is not None and timeout < 0 and self.maxsize > 0:
            raise ValueError("'timeout' must be a non-negative number")
        if packed:
            self._until(lambda arm: self._offer(packed, arm), Full, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the next item, waiting at most `timeout` seconds. Raises `Empty`, `ShutDown`."""
        return self._get(1, False, block, timeout)[0].item

    def get_many(self, limit: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Remove and return the next items in one step: at least one, at most `limit`, waiting for the first only."""
        return [taken.item for taken in self._get(limit, False, block, timeout)]

    def lease(self, block: bool = True, timeout: float | None = None) -> QueueLease:
        """Borrow the next item: it is gone with `ack`, and back in its place with `nack` or when this process dies."""
        return Lease(self, self._get(1, True, block, timeout)[0])

    def put_nowait(self, item: Any) -> None:
        """Store an item if there is room now. Raises `Full`."""
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        """Remove and return the next item if there is one now. Raises `Empty`."""
        return self.get(block=False)

    def empty(self) -> bool:
        """True when no item can be had now."""
        return not self.qsize()

    def full(self) -> bool:
        """True when no item can be put now."""
        return 0 < self.maxsize <= self.qsize()

    def join(self) -> None:
        """Wait until every item that was put is reported done."""
        self._until(self._finished, Empty, True, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _room_for(self, count: int) -> int:
        """Return how many items must fit before so many are put."""
        return 1 if self.lazy else count

    def _get(self, limit: int, lend: bool, block: bool, timeout: float | None) -> list[Taken]:
        if limit < 1:
            raise ValueError("'limit' must be a positive number")
        if block and timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        return self._until(lambda arm: self._take(limit, lend, arm), Empty, block, timeout)

    def _until(
        self, step: Callable[[bool], Done | None], failure: type[Exception], block: bool, timeout: float | None
    ) -> Done:
        if not block:
            timeout = -math.inf
        ends = math.inf if timeout is None else monotonic() + timeout
        while True:
            heard = self._heard()
            left_s = ends - monotonic()
            done = step(left_s > 0)
            if done is not None:
                return done
            if left_s <= 0:
                raise failure
            self._wait(heard, min(left_s, WAIT_MAX_S))


class Lease:
    """See `queues.ports.QueueLease`."""

    __slots__ = ("_queue", "_taken")

    def __init__(self, queue: BlockingQueue, taken: Taken) -> None:
        self._queue = queue
        self._taken = taken

    @property
    def item(self) -> Any:
        """The item."""
        return self._taken.item

    @property
    def attempts(self) -> int:
        """How often it was leased before, without an ack."""
        return self._taken.attempts

    def ack(self) -> None:
        """The item is done: forget it, and count it as `task_done`. Raises `ValueError` if the lease has ended."""
        self._queue._ack(self._taken)  # noqa: SLF001  the two are one

    def nack(self) -> None:
        """Put the item back in its place. Raises `ValueError` if the lease has ended."""
        self._queue._nack(self._taken)  # noqa: SLF001

    def __enter__(self) -> Any:
        return self.item

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.ack()
        else:
            self.nack()
