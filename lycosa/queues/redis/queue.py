"""A queue on Redis or Valkey 7.0 and later, or a cluster of them, shared by any number of processes and machines.

It does what the queue in a folder does. Each call is one script that the server runs at once or not at all (`lua/`);
every key of a queue has the same hash tag. A lease that is not acked comes back in its place when its process was
silent for `member.SILENT_MAX_S`. What a crash of the server can undo: docs/queue.md.
"""

from __future__ import annotations

import warnings
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.queues.blocking import BlockingQueue, Taken, checked_bound
from lycosa.queues.order import Order, priority_of, sortable
from lycosa.queues.packing import BadBytes, packing
from lycosa.queues.ports import ShutDown
from lycosa.queues.redis.member import Made, Member
from lycosa.queues.redis.server import Server, read_address

CALL_MAX_BYTES = 512 << 20
"""All items of one `put_many`, packed: the server takes no more at once."""
PATIENCE_S = 30.0
"""How long a call waits for a server that has gone, before it raises `StorageError`."""


class RedisQueue(BlockingQueue):
    """See `queues.folder.queue.Queue`. `sync` refuses a server that answers before a call is written to its disk."""

    def __init__(
        self,
        url: str,
        maxsize: int | None = None,
        *,
        order: Order = Order.FIFO,
        lazy: bool = False,
        serializer: str = "msgpack",
        type: Any = None,  # noqa: A002  what msgspec calls it
        sync: bool = False,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self._member: Member | None = None
        self._packing = packing(serializer, type)
        bound = None if maxsize is None else checked_bound(maxsize)
        self._opened = {
            "order": order, "lazy": lazy, "serializer": serializer, "type": type, "sync": sync,
            "patience_s": patience_s,
        }  # fmt: skip
        self._url, self.order, self.lazy = url, order, lazy
        self._server = Server(read_address(url), patience_s=patience_s)
        self._server.check(sync=sync)
        self._member = Member(self._server, Made(order.value, self._packing.name, bound))

    @property
    def maxsize(self) -> int:
        """See the port."""
        return int(self._ask("look")[3])

    @maxsize.setter
    def maxsize(self, maxsize: int) -> None:
        self._ask("change", "maxsize", checked_bound(maxsize))

    @property
    def unfinished_tasks(self) -> int:
        """See the port; what a process that ended had got is not counted."""
        return int(self._ask("look")[2])

    def qsize(self) -> int:
        """See the port."""
        return int(self._ask("look")[1])

    def task_done(self, count: int = 1) -> None:
        """See the port."""
        if self._call("tasks", count)[0] == "many":
            raise ValueError("task_done() called too many times")

    def shutdown(self, immediate: bool = False) -> None:
        """See the port; for all processes, until all have closed the queue."""
        self._ask("change", "shutdown", int(immediate))

    def close(self) -> None:
        """See the port. A closed queue raises `ValueError`."""
        if self._member is not None:
            self._member.close()

    def __del__(self) -> None:
        if self._member is not None and not self._member.closed:
            warnings.warn(
                f"queue {self._server.address.text} was not closed", ResourceWarning, source=self, stacklevel=2
            )
            self.close()

    def __reduce__(self) -> Any:
        return _reopen, (self._url, self._opened)

    def _pack(self, item: Any) -> tuple[bytes, bytes]:
        packed = self._packing.pack(item)
        return sortable(priority_of(item)) if self.order is Order.PRIORITY else b"", packed

    def _offer(self, packed: list[Any], arm: bool) -> bool | None:
        if sum(len(item) for _, item in packed) > CALL_MAX_BYTES:
            raise ValueError(f"more than {CALL_MAX_BYTES} bytes in one put_many; put them in several")
        room = self._room_for(len(packed))
        reply = self._call("put", int(arm), room, *(each for pair in packed for each in pair))
        match reply[0]:
            case "shut":
                raise ShutDown
            case "never":
                raise ValueError(f"{len(packed)} items never fit into a queue with maxsize {reply[1]}")
        return True if reply[0] == "ok" else None

    def _take(self, limit: int, lend: bool, arm: bool) -> list[Taken] | None:
        pop = "ZPOPMAX" if self.order is Order.LIFO else "ZPOPMIN"
        taken = self._lively.call("take", int(arm), int(lend), pop, limit, read=self._taken, lend=lend)
        return taken or None

    def _taken(self, reply: list[Any]) -> list[Taken]:
        if reply[0] == "shut":
            raise ShutDown
        if reply[0] == "empty":
            return []
        return [
            Taken(name, self._unpack(name, value), int(tried)) for name, tried, value in zip(*reply[1:], strict=True)
        ]

    def _finished(self, arm: bool) -> bool | None:
        return True if self._ask("finished", int(arm))[0] == "ok" else None

    def _ack(self, taken: Taken) -> None:
        self._end_lease("ack", taken)

    def _nack(self, taken: Taken) -> None:
        self._end_lease("nack", taken)

    def _end_lease(self, how: str, taken: Taken) -> None:
        reply = self._call("settle", how, taken.id)
        self._lively.release(taken.id)
        if reply[0] == "ended":
            raise ValueError("the lease has ended already")

    def _heard(self) -> int:
        return self._lively.rings

    def _wait(self, heard: int, timeout_s: float) -> None:
        self._lively.sleep(heard, timeout_s)

    @property
    def _lively(self) -> Member:
        assert self._member is not None
        return self._member

    def _call(self, script: str, *arguments: Any) -> list[Any]:
        return self._lively.call(script, *arguments, read=lambda reply: reply)

    def _ask(self, script: str, *arguments: Any) -> list[Any]:
        return self._lively.ask(script, *arguments)

    def _unpack(self, name: bytes, value: bytes) -> Any:
        try:
            return self._packing.unpack(value)
        except BadBytes as error:
            number = int(name[-16:])
            raise StorageError(f"{self._server.address.text}: item {number} cannot be read ({error})") from error


def _reopen(url: str, opened: dict[str, Any]) -> RedisQueue:
    return RedisQueue(url, **opened)
