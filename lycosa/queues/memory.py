"""A queue in the memory of one process, for any objects. Not durable: for tests of programs that use queues."""

from __future__ import annotations

from heapq import heappop, heappush
from threading import Condition, RLock
from typing import Any

from lycosa.queues.blocking import BlockingQueue, ShutDown, TakenItem, checked_maxsize
from lycosa.queues.order import Order, priority_of


class MemoryQueue(BlockingQueue):
    """A heap of items, ordered by rank. A leased item that is put back keeps its rank."""

    def __init__(self, maxsize: int = 0, *, order: Order = Order.FIFO, lazy: bool = False) -> None:
        self._maxsize = checked_maxsize(maxsize)
        self.lazy = lazy
        self._order = order
        self._heap: list[tuple[Any, TakenItem]] = []
        self._leased: dict[int, tuple[Any, TakenItem]] = {}
        self._last_id = 0
        self._unfinished = 0
        self._shut = False
        self._closed = False
        self._wakeups = 0
        self._changed = Condition(RLock())

    @property
    def maxsize(self) -> int:
        return self._maxsize

    @maxsize.setter
    def maxsize(self, maxsize: int) -> None:
        maxsize = checked_maxsize(maxsize)
        with self._changed:
            self._maxsize = maxsize
            self._wake()

    @property
    def unfinished_tasks(self) -> int:
        return self._unfinished

    def qsize(self) -> int:
        return len(self._heap)

    def task_done(self, count: int = 1) -> None:
        with self._changed:
            if count > self._unfinished:
                raise ValueError("task_done() called too many times")
            self._unfinished -= count
            self._wake()

    def shutdown(self, immediate: bool = False) -> None:
        with self._changed:
            self._shut = True
            if immediate:
                self._unfinished = max(0, self._unfinished - len(self._heap))
                self._heap.clear()
            self._wake()

    def close(self) -> None:
        with self._changed:
            for _, taken in list(self._leased.values()):
                self._nack(taken)
            self._closed = True
            self._wake()

    def _pack(self, item: Any) -> Any:
        priority = priority_of(item) if self._order is Order.PRIORITY else 0
        return (isinstance(priority, str), priority), item

    def _put(self, packed: list[Any], register: bool) -> bool | None:
        with self._changed:
            self._refuse_closed()
            if self._shut:
                raise ShutDown
            room = self._room_for(len(packed))
            if 0 < self._maxsize < len(self._heap) + room:
                if room > max(1, self._maxsize):
                    raise ValueError(f"{len(packed)} items can never fit into a queue with maxsize {self._maxsize}")
                return None
            for rank, item in packed:
                self._last_id += 1
                place = -self._last_id if self._order is Order.LIFO else self._last_id
                heappush(self._heap, ((rank, place), TakenItem(self._last_id, item, 0)))
            self._unfinished += len(packed)
            self._wake()
            return True

    def _take(self, limit: int, lease: bool, register: bool) -> list[TakenItem] | None:
        with self._changed:
            self._refuse_closed()
            if not self._heap:
                if self._shut:
                    raise ShutDown
                return None
            entries = [heappop(self._heap) for _ in range(min(limit, len(self._heap)))]
            if lease:
                self._leased.update((entry[1].id, entry) for entry in entries)
            self._wake()
            return [taken for _, taken in entries]

    def _all_done(self, register: bool) -> bool | None:
        return None if self._unfinished else True

    def _ack(self, taken: TakenItem) -> None:
        with self._changed:
            self._end_lease(taken)
            self._unfinished = max(0, self._unfinished - 1)
            self._wake()

    def _nack(self, taken: TakenItem) -> None:
        with self._changed:
            rank = self._end_lease(taken)
            heappush(self._heap, (rank, taken._replace(attempts=taken.attempts + 1)))
            self._wake()

    def _wakeup_count(self) -> int:
        return self._wakeups

    def _wait(self, wakeup_count: int, timeout_s: float) -> None:
        with self._changed:
            if self._wakeups == wakeup_count:
                self._changed.wait(timeout_s)

    def _end_lease(self, taken: TakenItem) -> Any:
        entry = self._leased.pop(taken.id, None)
        if entry is None:
            raise ValueError("the lease has ended already")
        return entry[0]

    def _refuse_closed(self) -> None:
        if self._closed:
            raise ValueError("the queue is closed")

    def _wake(self) -> None:
        self._wakeups += 1
        self._changed.notify_all()
