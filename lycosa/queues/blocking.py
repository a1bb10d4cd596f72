"""The interface of `queue.Queue`, built on three atomic steps of a back end (`_put`, `_take`, `_all_done`) and a wait.

A step never blocks; it returns None if it cannot be done now. With `register` it also records that this queue object is
waiting; `_wait` then sleeps until a retry may succeed. No wake-up is lost: one that arrives after `_wakeup_count` was
read ends the wait immediately.
"""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from queue import Empty, Full
from time import monotonic
from typing import Any, NamedTuple, Self, TypeVar

from lycosa.core.errors import UsageError

if sys.version_info >= (3, 13):
    from queue import ShutDown
else:

    class ShutDown(Exception):
        """The queue accepts no more items, or is empty for good (`queue.ShutDown` from Python 3.13 on)."""


WAIT_MAX_S = 3600.0
"""Longer waits are split."""

COUNT_MAX = 1 << 62
"""Maximum number of items in a queue."""

Done = TypeVar("Done")


class TakenItem(NamedTuple):
    """An item with its `id` in the back end. `attempts` counts earlier leases that ended without an ack."""

    id: Any
    item: Any
    attempts: int


def checked_maxsize(maxsize: object) -> int:
    """Raises `UsageError` unless back ends can store this `maxsize`."""
    if type(maxsize) is not int or abs(maxsize) > COUNT_MAX:
        raise UsageError(f"maxsize={maxsize!r:.40}: write a whole number, 0 for no limit")
    return maxsize


class BlockingQueue(ABC):
    """The interface and exceptions of `queue.Queue`, plus batches and leases; for threads and processes."""

    lazy = False
    """If True, `maxsize` is a soft limit: a whole batch is accepted if fewer than `maxsize` items are waiting."""

    @property
    @abstractmethod
    def maxsize(self) -> int:
        """No limit if 0 or negative."""

    @property
    @abstractmethod
    def unfinished_tasks(self) -> int:
        """The number of items put and not yet reported done. Items taken by a process that has ended do not count."""

    @abstractmethod
    def qsize(self) -> int: ...

    @abstractmethod
    def task_done(self, count: int = 1) -> None:
        """Report `count` items from `get` as done. Raises `ValueError` if fewer items are unfinished."""

    @abstractmethod
    def shutdown(self, immediate: bool = False) -> None:
        """Refuse new items from all processes until all of them have closed the queue. `immediate` drops waiting items.

        After that, `put` raises `ShutDown`, and so does `get` once the queue is empty; waiting calls raise it, too.
        """

    @abstractmethod
    def close(self) -> None:
        """Return all leased items to the queue and leave it; stored items stay. Later calls raise `ValueError`."""

    @abstractmethod
    def _pack(self, item: Any) -> Any:
        """Raises `TypeError` for an item that cannot be stored."""

    @abstractmethod
    def _put(self, packed: list[Any], register: bool) -> bool | None:
        """Store all items, or none if there are fewer free places than `_room_for` says.

        Raises `ShutDown`, or `ValueError` if there never will be room.
        """

    @abstractmethod
    def _take(self, limit: int, lease: bool, register: bool) -> list[TakenItem] | None:
        """Remove or lease the next items. Raises `ShutDown` if the queue is empty and shut down."""

    @abstractmethod
    def _all_done(self, register: bool) -> bool | None: ...

    @abstractmethod
    def _ack(self, taken: TakenItem) -> None:
        """Raises `ValueError` if the lease has ended."""

    @abstractmethod
    def _nack(self, taken: TakenItem) -> None:
        """Put the item back at its old position. Raises `ValueError` if the lease has ended."""

    @abstractmethod
    def _wakeup_count(self) -> int:
        """A number that changes with every wake-up."""

    @abstractmethod
    def _wait(self, wakeup_count: int, timeout_s: float) -> None:
        """Sleep until there are more wake-ups than `wakeup_count`, or until the timeout."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Store an item, waiting at most `timeout` seconds for room. Raises `Full`, `ShutDown`, `TypeError`."""
        self.put_many((item,), block, timeout)

    def put_many(self, items: Iterable[Any], block: bool = True, timeout: float | None = None) -> None:
        """Store all items in one step, or none: faster than one step per item."""
        packed = [self._pack(item) for item in items]
        # queue.Queue checks the timeout of a put only if the queue is bounded.
        if block and timeout is not None and timeout < 0 and self.maxsize > 0:
            raise ValueError("'timeout' must be a non-negative number")
        if packed:
            self._until_done(lambda register: self._put(packed, register), Full, block, timeout)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the next item, waiting at most `timeout` seconds. Raises `Empty`, `ShutDown`."""
        return self._get(1, False, block, timeout)[0].item

    def get_many(self, limit: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Wait for an item, then remove and return the next items in one step: at least one, at most `limit`."""
        return [taken.item for taken in self._get(limit, False, block, timeout)]

    def lease(self, block: bool = True, timeout: float | None = None) -> QueueLease:
        """Lease the next item. `ack` removes it; `nack` or the death of this process puts it back at its position."""
        return QueueLease(self, self._get(1, True, block, timeout)[0])

    def put_nowait(self, item: Any) -> None:
        self.put(item, block=False)

    def get_nowait(self) -> Any:
        return self.get(block=False)

    def empty(self) -> bool:
        return not self.qsize()

    def full(self) -> bool:
        return 0 < self.maxsize <= self.qsize()

    def join(self) -> None:
        """Wait until every item that was put is reported done."""
        self._until_done(self._all_done, Empty, True, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close()

    def _room_for(self, count: int) -> int:
        """How many places must be free before `count` items are put."""
        return 1 if self.lazy else count

    def _get(self, limit: int, lease: bool, block: bool, timeout: float | None) -> list[TakenItem]:
        if limit < 1:
            raise ValueError("'limit' must be a positive number")
        if block and timeout is not None and timeout < 0:
            raise ValueError("'timeout' must be a non-negative number")
        return self._until_done(lambda register: self._take(limit, lease, register), Empty, block, timeout)

    def _until_done(
        self, step: Callable[[bool], Done | None], failure: type[Exception], block: bool, timeout: float | None
    ) -> Done:
        if not block:
            timeout = -math.inf
        deadline = math.inf if timeout is None else monotonic() + timeout
        while True:
            # Read before the step: a wake-up between the step and the wait must not be lost.
            wakeup_count = self._wakeup_count()
            left_s = deadline - monotonic()
            done = step(left_s > 0)
            if done is not None:
                return done
            if left_s <= 0:
                raise failure
            self._wait(wakeup_count, min(left_s, WAIT_MAX_S))


class QueueLease:
    """A leased item. `with queue.lease() as item:` ends with an ack, or with a nack after an exception."""

    __slots__ = ("_queue", "_taken", "attempts", "item")

    def __init__(self, queue: BlockingQueue, taken: TakenItem) -> None:
        self._queue = queue
        self._taken = taken
        self.item = taken.item
        self.attempts = taken.attempts
        """Number of earlier leases of the item that ended without an ack."""

    def ack(self) -> None:
        """Remove the item, and count it as `task_done`. Raises `ValueError` if the lease has ended."""
        self._queue._ack(self._taken)  # noqa: SLF001  part of the queue

    def nack(self) -> None:
        """Put the item back at its old position. Raises `ValueError` if the lease has ended."""
        self._queue._nack(self._taken)  # noqa: SLF001

    def __enter__(self) -> Any:
        return self.item

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.ack()
        else:
            self.nack()
