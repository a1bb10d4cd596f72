"""A queue by itself: `queue.Queue`, durable, with leases."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol, Self

if sys.version_info >= (3, 13):
    from queue import ShutDown
else:

    class ShutDown(Exception):
        """The queue takes no more items, or has none left and will get none (`queue.ShutDown` from Python 3.13 on)."""


class QueueLease(Protocol):
    """An item that is lent. `with queue.lease() as item:` ends with an ack, or with a nack after an exception."""

    @property
    def item(self) -> Any:
        """The item."""
        ...

    @property
    def attempts(self) -> int:
        """How often it was leased before, without an ack."""
        ...

    def ack(self) -> None:
        """The item is done: forget it, and count it as `task_done`. Raises `ValueError` if the lease has ended."""
        ...

    def nack(self) -> None:
        """Put the item back in its place. Raises `ValueError` if the lease has ended."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Queue(Protocol):
    """What `queue.Queue` does, with its exceptions, and batches and leases. Blocking; for threads and processes."""

    lazy: bool
    """Whether `maxsize` is a mark for the puts of this object: they wait for one free place, not for room for all."""

    @property
    def maxsize(self) -> int:
        """The number of items it holds at most; no bound at 0 or below."""
        ...

    @property
    def unfinished_tasks(self) -> int:
        """Items that were put and not yet reported done."""
        ...

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
        """Store an item, waiting at most `timeout` seconds for room. Raises `Full`, `ShutDown`, `TypeError`."""
        ...

    def put_many(self, items: Iterable[Any], block: bool = True, timeout: float | None = None) -> None:
        """Store all items in one step, or none."""
        ...

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove and return the next item, waiting at most `timeout` seconds. Raises `Empty`, `ShutDown`."""
        ...

    def get_many(self, limit: int, block: bool = True, timeout: float | None = None) -> list[Any]:
        """Remove and return the next items in one step: at least one, at most `limit`, waiting for the first only."""
        ...

    def lease(self, block: bool = True, timeout: float | None = None) -> QueueLease:
        """Borrow the next item: gone with `ack`, back in its place with `nack` or when the process ends."""
        ...

    def put_nowait(self, item: Any) -> None:
        """Store an item if there is room now. Raises `Full`."""
        ...

    def get_nowait(self) -> Any:
        """Remove and return the next item if there is one now. Raises `Empty`."""
        ...

    def qsize(self) -> int:
        """Return the number of items that can be had now."""
        ...

    def empty(self) -> bool:
        """True when no item can be had now."""
        ...

    def full(self) -> bool:
        """True when no item can be put now."""
        ...

    def task_done(self, count: int = 1) -> None:
        """Report got items as done. Raises `ValueError` when there were not so many."""
        ...

    def join(self) -> None:
        """Wait until every item that was put is reported done."""
        ...

    def shutdown(self, immediate: bool = False) -> None:
        """Take no more items; with `immediate` drop those that wait, too. Blocked calls raise `ShutDown`."""
        ...

    def close(self) -> None:
        """Give back what is leased and leave."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
