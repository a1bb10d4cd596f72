"""A durable queue in a folder, shared by the processes and threads of one machine.

When `put` returns, the item is stored; when `get` returns, it is removed. When a process ends, in any way, its leased
items return to their old positions. Items are ordered by commit, across all processes.
"""

from __future__ import annotations

import sqlite3
from os import PathLike
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.queues.blocking import BlockingQueue, ShutDown, TakenItem, checked_maxsize
from lycosa.queues.folder.store import DONE, ITEMS, ROOM, QueueFolder, QueueState
from lycosa.queues.item_codec import CorruptItem, item_codec
from lycosa.queues.order import Order, priority_of

NEXT = {
    Order.FIFO: "SELECT id, attempts, value, rank FROM items ORDER BY id LIMIT ?",
    Order.LIFO: "SELECT id, attempts, value, rank FROM items ORDER BY id DESC LIMIT ?",
    Order.PRIORITY: "SELECT id, attempts, value, rank FROM items ORDER BY rank, id LIMIT ?",
}


class FolderQueue(BlockingQueue):
    """`queue.Queue` in a folder; subclasses set `order`.

    `maxsize` applies to all processes; None leaves it unchanged (a new queue is unbounded). With `lazy`, `put_many` of
    this object waits until one place is free, and may then exceed `maxsize`. `serializer` is "msgpack", with `type` for
    dataclasses and msgspec Structs, or "pickle". Use pickle only if you trust everybody who can write to the folder:
    loading a pickle runs the code that it names. With `sync`, items survive a power loss, at the cost of a disk write
    per call.

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
        type: Any = None,  # noqa: A002  msgspec's word
        sync: bool = False,
    ) -> None:
        self._codec = item_codec(serializer, type)
        bound = None if maxsize is None else checked_maxsize(maxsize)
        self.lazy = lazy
        self._options = {"lazy": lazy, "serializer": serializer, "type": type, "sync": sync}
        self._folder = QueueFolder(Path(path), self.order, self._codec.name, sync=sync)
        try:
            with self._folder.change() as (_, state):
                if bound is not None:
                    state.maxsize = bound
        except BaseException:
            self._folder.abandon()
            raise

    @property
    def maxsize(self) -> int:
        with self._folder.change() as (_, state):
            return state.maxsize

    @maxsize.setter
    def maxsize(self, maxsize: int) -> None:
        maxsize = checked_maxsize(maxsize)
        with self._folder.change() as (_, state):
            state.maxsize = maxsize

    @property
    def unfinished_tasks(self) -> int:
        with self._folder.change() as (_, state):
            return state.unfinished

    def qsize(self) -> int:
        with self._folder.change() as (_, state):
            return state.size

    def task_done(self, count: int = 1) -> None:
        with self._folder.change() as (_, state):
            if count > state.unfinished:
                raise ValueError("task_done() called too many times")
            state.unfinished -= count
            state.report_done(self._folder.member, count)

    def shutdown(self, immediate: bool = False) -> None:
        with self._folder.change() as (database, state):
            state.shut = True
            if immediate:
                database.execute("DELETE FROM items")
                state.unfinished = max(0, state.unfinished - state.size)
                state.size = 0

    def close(self) -> None:
        self._folder.close()

    def __reduce__(self) -> Any:
        return _reopen, (type(self), str(self._folder.path.absolute()), self._options)

    def _pack(self, item: Any) -> tuple[bytes, Any]:
        return self._codec.pack(item), priority_of(item) if self.order is Order.PRIORITY else None

    def _put(self, packed: list[Any], register: bool) -> bool | None:
        with self._folder.change() as (database, state):
            if state.shut:
                raise ShutDown
            room = self._room_for(len(packed))
            if state.room() < room:
                if room > max(1, state.maxsize):
                    raise ValueError(f"{len(packed)} items can never fit into a queue with maxsize {state.maxsize}")
                if register:
                    state.register(self._folder.member, ROOM, room)
                return None
            rows = ((number, rank, value) for number, (value, rank) in enumerate(packed, state.next_id))
            database.executemany("INSERT INTO items VALUES (?, ?, 0, ?)", rows)
            state.next_id += len(packed)
            state.size += len(packed)
            state.unfinished += len(packed)
            return True

    def _take(self, limit: int, lease: bool, register: bool) -> list[TakenItem] | None:
        with self._folder.change() as (database, state):
            if not state.size:
                if state.shut:
                    raise ShutDown
                if register:
                    state.register(self._folder.member, ITEMS)
                return None
            member = self._folder.member
            rows = self._next_rows(database, state, limit)
            taken = [TakenItem(number, self._unpack(number, value), attempts) for number, attempts, value, _ in rows]
            if lease:
                leased = [(number, member, rank, attempts, value) for number, attempts, value, rank in rows]
                database.executemany("INSERT INTO leased VALUES (?, ?, ?, ?, ?)", leased)
            else:
                state.members[member].got += len(rows)
            database.executemany("DELETE FROM items WHERE id = ?", [(number,) for number, *_ in rows])
            state.size -= len(rows)
            return taken

    def _all_done(self, register: bool) -> bool | None:
        with self._folder.change() as (_, state):
            if not state.unfinished:
                return True
            if register:
                state.register(self._folder.member, DONE)
            return None

    def _ack(self, taken: TakenItem) -> None:
        with self._folder.change() as (database, state):
            self._end_lease(database, taken)
            state.unfinished = max(0, state.unfinished - 1)

    def _nack(self, taken: TakenItem) -> None:
        with self._folder.change() as (database, state):
            database.execute(
                "INSERT INTO items SELECT id, rank, attempts + 1, value FROM leased WHERE id = ?", (taken.id,)
            )
            self._end_lease(database, taken)
            state.size += 1

    def _wakeup_count(self) -> int:
        return self._folder.wakeup_count

    def _wait(self, wakeup_count: int, timeout_s: float) -> None:
        self._folder.sleep(wakeup_count, timeout_s)

    def _next_rows(
        self, database: sqlite3.Connection, state: QueueState, limit: int
    ) -> list[tuple[int, int, bytes, Any]]:
        limit = min(limit, state.size)
        rows = database.execute(NEXT[self.order], (limit,)).fetchall()
        if len(rows) < limit:
            raise StorageError(f"{self._folder.path}: items are missing, the database of the queue is damaged")
        return rows

    def _unpack(self, number: int, value: bytes) -> Any:
        try:
            return self._codec.unpack(value)
        except CorruptItem as error:
            raise StorageError(f"{self._folder.path}: item {number} cannot be read ({error})") from error

    def _end_lease(self, database: sqlite3.Connection, taken: TakenItem) -> None:
        # A forked child has the leases of its parent in memory, but must not end them.
        ended = database.execute("DELETE FROM leased WHERE id = ? AND member = ?", (taken.id, self._folder.member))
        if not ended.rowcount:
            raise ValueError("the lease has ended already")


def _reopen(kind: type[FolderQueue], path: str, options: dict[str, Any]) -> FolderQueue:
    return kind(path, **options)
