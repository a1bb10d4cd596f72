"""A durable queue in a folder, shared by the processes and threads of one machine; see `store` for how.

An item is stored when `put` returns and gone when `get` returns; a lease that is not acked comes back in its place when
its process ends, however it ends. Order is the order of commits, whichever process made them.
"""

from __future__ import annotations

import sqlite3
from os import PathLike
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.queues.blocking import BlockingQueue, Taken, checked_bound
from lycosa.queues.folder.store import DONE, ITEMS, ROOM, Folder, State
from lycosa.queues.order import Order, priority_of
from lycosa.queues.packing import BadBytes, packing
from lycosa.queues.ports import ShutDown

NEXT = {
    Order.FIFO: "SELECT id, attempts, value, rank FROM items ORDER BY id LIMIT ?",
    Order.LIFO: "SELECT id, attempts, value, rank FROM items ORDER BY id DESC LIMIT ?",
    Order.PRIORITY: "SELECT id, attempts, value, rank FROM items ORDER BY rank, id LIMIT ?",
}


class Queue(BlockingQueue):
    """First in, first out: `queue.Queue` in a folder.

    `maxsize` holds for all processes; None leaves it as it is, unbounded when new. With `lazy` this object's `put_many`
    waits for one place only and may then exceed it. `serializer` is "msgpack", with
    `type` for dataclasses and msgspec Structs, or "pickle". Choose pickle only when you trust everybody who can write
    to the folder: loading a pickle runs whatever code it names. `sync` survives a power loss, at the price of a disk
    write for every call.

    Raises `UsageError`, `ForeignState`, `NewerState`, `StorageFull` or `StorageError`.
    """

    order = Order.FIFO

    def __init__(
        self,
        path: str | PathLike[str],
        maxsize: int | None = None,
        *,
        lazy: bool = False,
        serializer: str = "msgpack",
        type: Any = None,  # noqa: A002  what msgspec calls it
        sync: bool = False,
    ) -> None:
        self._packing = packing(serializer, type)
        bound = None if maxsize is None else checked_bound(maxsize)
        self.lazy = lazy
        self._opened = {"lazy": lazy, "serializer": serializer, "type": type, "sync": sync}
        self._folder = Folder(Path(path), self.order, self._packing.name, sync=sync)
        try:
            with self._folder.change() as (_, state):
                if bound is not None:
                    state.maxsize = bound
        except BaseException:
            self._folder.abandon()
            raise

    @property
    def maxsize(self) -> int:
        """The number of items it holds at most; no bound at 0 or below."""
        with self._folder.change() as (_, state):
            return state.maxsize

    @maxsize.setter
    def maxsize(self, maxsize: int) -> None:
        bound = checked_bound(maxsize)
        with self._folder.change() as (_, state):
            state.maxsize = bound

    @property
    def unfinished_tasks(self) -> int:
        """Items that were put and not yet reported done; those of a process that ended are not counted."""
        with self._folder.change() as (_, state):
            return state.unfinished

    def qsize(self) -> int:
        """Return the number of items that can be had now."""
        with self._folder.change() as (_, state):
            return state.size

    def task_done(self, count: int = 1) -> None:
        """Report got items as done. Raises `ValueError` when there were not so many."""
        with self._folder.change() as (_, state):
            if count > state.unfinished:
                raise ValueError("task_done() called too many times")
            state.unfinished -= count
            state.report(self._folder.member, count)

    def shutdown(self, immediate: bool = False) -> None:
        """Take no more items, in any process, until all have closed the queue; with `immediate` drop those that wait.

        Then `put` raises `ShutDown`, and `get` when the queue is empty.
        """
        with self._folder.change() as (database, state):
            state.shut = True
            if immediate:
                database.execute("DELETE FROM items")
                state.unfinished = max(0, state.unfinished - state.size)
                state.size = 0

    def close(self) -> None:
        """Give back what is leased and leave; the items stay. A closed queue raises `ValueError`."""
        self._folder.close()

    def __reduce__(self) -> Any:
        return _reopen, (type(self), str(self._folder.path.absolute()), self._opened)

    def _pack(self, item: Any) -> tuple[bytes, Any]:
        return self._packing.pack(item), None

    def _offer(self, packed: list[Any], arm: bool) -> bool | None:
        with self._folder.change() as (database, state):
            if state.shut:
                raise ShutDown
            room = self._room_for(len(packed))
            if state.room() < room:
                if room > max(1, state.maxsize):
                    raise ValueError(f"{len(packed)} items never fit into a queue with maxsize {state.maxsize}")
                if arm:
                    state.want(self._folder.member, ROOM, room)
                return None
            rows = ((number, rank, value) for number, (value, rank) in enumerate(packed, state.next_id))
            database.executemany("INSERT INTO items VALUES (?, ?, 0, ?)", rows)
            state.next_id += len(packed)
            state.size += len(packed)
            state.unfinished += len(packed)
            return True

    def _take(self, limit: int, lend: bool, arm: bool) -> list[Taken] | None:
        with self._folder.change() as (database, state):
            if not state.size:
                if state.shut:
                    raise ShutDown
                if arm:
                    state.want(self._folder.member, ITEMS)
                return None
            rows = self._next(database, state, limit)
            taken = [Taken(number, self._unpack(number, value), attempts) for number, attempts, value, _ in rows]
            if lend:
                lent = [(number, self._folder.member, rank, attempts, value) for number, attempts, value, rank in rows]
                database.executemany("INSERT INTO leased VALUES (?, ?, ?, ?, ?)", lent)
            else:
                state.members[self._folder.member].got += len(rows)
            database.executemany("DELETE FROM items WHERE id = ?", [(number,) for number, *_ in rows])
            state.size -= len(rows)
            return taken

    def _finished(self, arm: bool) -> bool | None:
        with self._folder.change() as (_, state):
            if not state.unfinished:
                return True
            if arm:
                state.want(self._folder.member, DONE)
            return None

    def _ack(self, taken: Taken) -> None:
        with self._folder.change() as (database, state):
            self._end_lease(database, taken)
            state.unfinished = max(0, state.unfinished - 1)

    def _nack(self, taken: Taken) -> None:
        with self._folder.change() as (database, state):
            database.execute(
                "INSERT INTO items SELECT id, rank, attempts + 1, value FROM leased WHERE id = ?", (taken.id,)
            )
            self._end_lease(database, taken)
            state.size += 1

    def _heard(self) -> int:
        return self._folder.wakes

    def _wait(self, heard: int, timeout_s: float) -> None:
        self._folder.sleep(heard, timeout_s)

    def _next(self, database: sqlite3.Connection, state: State, limit: int) -> list[tuple[int, int, bytes, Any]]:
        limit = min(limit, state.size)
        rows = database.execute(NEXT[self.order], (limit,)).fetchall()
        if len(rows) < limit:
            raise StorageError(f"{self._folder.path}: items are missing, the database of the queue is damaged")
        return rows

    def _unpack(self, number: int, value: bytes) -> Any:
        try:
            return self._packing.unpack(value)
        except BadBytes as error:
            raise StorageError(f"{self._folder.path}: item {number} cannot be read ({error})") from error

    def _end_lease(self, database: sqlite3.Connection, taken: Taken) -> None:
        ended = database.execute("DELETE FROM leased WHERE id = ? AND member = ?", (taken.id, self._folder.member))
        if not ended.rowcount:
            raise ValueError("the lease has ended already")


class LifoQueue(Queue):
    """Last in, first out: `queue.LifoQueue` in a folder. See `Queue`."""

    order = Order.LIFO


class PriorityQueue(Queue):
    """Lowest priority first: `queue.PriorityQueue` in a folder. See `Queue`.

    The priority is the item itself or the first thing in it, a number or text; equal ones come first in, first out.
    """

    order = Order.PRIORITY

    def _pack(self, item: Any) -> tuple[bytes, Any]:
        return self._packing.pack(item), priority_of(item)


def _reopen(kind: type[Queue], path: str, opened: dict[str, Any]) -> Queue:
    return kind(path, **opened)
