"""A queue in the memory of one process: any object, no durability. What the embedded queue does, without the disk."""

from __future__ import annotations

from heapq import heappop, heappush
from threading import Condition, RLock
from typing import Any

from lycosa.queues.blocking import BlockingQueue, Taken, checked_bound
from lycosa.queues.order import Order, priority_of
from lycosa.queues.ports import ShutDown


class MemoryQueue(BlockingQueue):
    """A heap of items by their rank; a lent one comes back under the rank it had."""

    def __init__(self, maxsize: int = 0, *, order: Order = Order.FIFO, lazy: bool = False) -> None:
        self._maxsize = checked_bound(maxsize)
        self.lazy = lazy
        self._order = order
        self._heap: list[tuple[Any, Taken]] = []
        self._lent: dict[int, tuple[Any, Taken]] = {}
        self._next_id = 0
        self._unfinished = 0
        self._shut = False
        self._closed = False
        self._wakes = 0
        self._changed = Condition(RLock())

    @property
    def maxsize(self) -> int:
        """See the port."""
        return self._maxsize

    @maxsize.setter
    def maxsize(self, maxsize: int) -> None:
        bound = checked_bound(maxsize)
        with self._changed:
            self._maxsize = bound
            self._wake()

    @property
    def unfinished_tasks(self) -> int:
        """See the port."""
        return self._unfinished

    def qsize(self) -> int:
        """See the port."""
        return len(self._heap)

    def task_done(self, count: int = 1) -> None:
        """See the port."""
        with self._changed:
            if count > self._unfinished:
                raise ValueError("task_done() called too many times")
            self._unfinished -= count
            self._wake()

    def shutdown(self, immediate: bool = False) -> None:
        """See the port."""
        with self._changed:
            self._shut = True
            if immediate:
                self._unfinished = max(0, self._unfinished - len(self._heap))
                self._heap.clear()
            self._wake()

    def close(self) -> None:
        """See the port."""
        with self._changed:
            for _, taken in list(self._lent.values()):
                self._nack(taken)
            self._closed = True
            self._wake()

    def _pack(self, item: Any) -> Any:
        rank = priority_of(item) if self._order is Order.PRIORITY else 0
        return rank, item

    def _offer(self, packed: list[Any], arm: bool) -> bool | None:
        with self._changed:
            self._refuse_closed()
            if self._shut:
                raise ShutDown
            room = self._room_for(len(packed))
            if 0 < self._maxsize < len(self._heap) + room:
                if room > max(1, self._maxsize):
                    raise ValueError(f"{len(packed)} items never fit into a queue with maxsize {self._maxsize}")
                return None
            for rank, item in packed:
                self._next_id += 1
                place = -self._next_id if self._order is Order.LIFO else self._next_id
                heappush(self._heap, ((rank, place), Taken(self._next_id, item, 0)))
            self._unfinished += len(packed)
            self._wake()
            return True

    def _take(self, limit: int, lend: bool, arm: bool) -> list[Taken] | None:
        with self._changed:
            self._refuse_closed()
            if not self._heap:
                if self._shut:
                    raise ShutDown
                return None
            entries = [heappop(self._heap) for _ in range(min(limit, len(self._heap)))]
            if lend:
                self._lent.update((entry[1].id, entry) for entry in entries)
            self._wake()
            return [taken for _, taken in entries]

    def _finished(self, arm: bool) -> bool | None:
        return None if self._unfinished else True

    def _ack(self, taken: Taken) -> None:
        with self._changed:
            self._end_lease(taken)
            self._unfinished = max(0, self._unfinished - 1)
            self._wake()

    def _nack(self, taken: Taken) -> None:
        with self._changed:
            rank = self._end_lease(taken)
            heappush(self._heap, (rank, taken._replace(attempts=taken.attempts + 1)))
            self._wake()

    def _heard(self) -> int:
        return self._wakes

    def _wait(self, heard: int, timeout_s: float) -> None:
        with self._changed:
            if self._wakes == heard:
                self._changed.wait(timeout_s)

    def _end_lease(self, taken: Taken) -> Any:
        entry = self._lent.pop(taken.id, None)
        if entry is None:
            raise ValueError("the lease has ended already")
        return entry[0]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError("the queue is closed")

    def _wake(self) -> None:
        self._wakes += 1
        self._changed.notify_all()
