"""A queue on Redis 7.0 or later, or on Valkey, shared by any number of processes and machines.

It behaves like `FolderQueue`. Each call is one script (`lua/`), which runs as a whole or not at all. All keys of a
queue have the same hash tag, so the server may be a cluster. Leased items return to their positions once their process
has been silent for `member.SILENT_MAX_S`. docs/queue.md says what a crash of the server can undo.
"""

from __future__ import annotations

import warnings
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.queues.blocking import BlockingQueue, ShutDown, TakenItem, checked_maxsize
from lycosa.queues.item_codec import CorruptItem, item_codec
from lycosa.queues.order import Order, priority_of, sort_key
from lycosa.queues.redis.member import QueueFormat, QueueMember
from lycosa.queues.redis.server import QueueServer, read_queue_address

CALL_MAX_BYTES = 512 << 20
"""Maximum bytes of the packed items of one `put_many`."""
RECONNECT_MAX_S = 30.0
"""How long a call is retried while the server is down, before it raises `StorageError`."""


class RedisQueue(BlockingQueue):
    """See `queues.folder.queue.FolderQueue`. `sync` needs a server that writes each call to disk before replying."""

    def __init__(
        self,
        url: str,
        maxsize: int | None = None,
        *,
        order: Order = Order.FIFO,
        lazy: bool = False,
        serializer: str = "msgpack",
        type: Any = None,  # noqa: A002  msgspec's word
        sync: bool = False,
        reconnect_max_s: float = RECONNECT_MAX_S,
    ) -> None:
        self._codec = item_codec(serializer, type)
        bound = None if maxsize is None else checked_maxsize(maxsize)
        self._options = {
            "order": order, "lazy": lazy, "serializer": serializer, "type": type, "sync": sync,
            "reconnect_max_s": reconnect_max_s,
        }  # fmt: skip
        self._url, self.order, self.lazy = url, order, lazy
        self._server = QueueServer(read_queue_address(url), reconnect_max_s=reconnect_max_s)
        self._server.check(sync=sync)
        self._member = QueueMember(self._server, QueueFormat(order.value, self._codec.name, bound))

    @property
    def maxsize(self) -> int:
        return int(self._ask("look")[3])

    @maxsize.setter
    def maxsize(self, maxsize: int) -> None:
        self._ask("change", "maxsize", checked_maxsize(maxsize))

    @property
    def unfinished_tasks(self) -> int:
        return int(self._ask("look")[2])

    def qsize(self) -> int:
        return int(self._ask("look")[1])

    def task_done(self, count: int = 1) -> None:
        if self._call("task_done", count)[0] == "too often":
            raise ValueError("task_done() called too many times")

    def shutdown(self, immediate: bool = False) -> None:
        self._ask("change", "shutdown", int(immediate))

    def close(self) -> None:
        self._member.close()

    def __del__(self) -> None:
        member = getattr(self, "_member", None)  # missing when the constructor has failed
        if member is not None and not member.closed:
            warnings.warn(f"queue {self._server.text} was not closed", ResourceWarning, source=self, stacklevel=2)
            self.close()

    def __reduce__(self) -> Any:
        return _reopen, (self._url, self._options)

    def _pack(self, item: Any) -> tuple[bytes, bytes]:
        packed = self._codec.pack(item)
        return sort_key(priority_of(item)) if self.order is Order.PRIORITY else b"", packed

    def _put(self, packed: list[Any], register: bool) -> bool | None:
        if sum(len(item) for _, item in packed) > CALL_MAX_BYTES:
            raise ValueError(f"put_many: these items have more than {CALL_MAX_BYTES} bytes: put them in several calls")
        room = self._room_for(len(packed))
        reply = self._call("put", int(register), room, *(part for pair in packed for part in pair))
        match reply[0]:
            case "shut":
                raise ShutDown
            case "never":
                raise ValueError(f"{len(packed)} items can never fit into a queue with maxsize {reply[1]}")
        return True if reply[0] == "ok" else None

    def _take(self, limit: int, lease: bool, register: bool) -> list[TakenItem] | None:
        pop = "ZPOPMAX" if self.order is Order.LIFO else "ZPOPMIN"
        arguments = (int(register), int(lease), pop, limit)
        taken = self._member.call("take", *arguments, read=self._taken_items, lease=lease)
        return taken or None

    def _taken_items(self, reply: list[Any]) -> list[TakenItem]:
        if reply[0] == "shut":
            raise ShutDown
        if reply[0] == "empty":
            return []
        return [
            TakenItem(place, self._unpack(place, value), int(attempts))
            for place, attempts, value in zip(*reply[1:], strict=True)
        ]

    def _all_done(self, register: bool) -> bool | None:
        return True if self._ask("all_done", int(register))[0] == "ok" else None

    def _ack(self, taken: TakenItem) -> None:
        self._end_lease("ack", taken)

    def _nack(self, taken: TakenItem) -> None:
        self._end_lease("nack", taken)

    def _end_lease(self, verb: str, taken: TakenItem) -> None:
        reply = self._call("end_lease", verb, taken.id)
        self._member.lease_ended(taken.id)
        if reply[0] == "ended":
            raise ValueError("the lease has ended already")

    def _wakeup_count(self) -> int:
        return self._member.wakeup_count

    def _wait(self, wakeup_count: int, timeout_s: float) -> None:
        self._member.sleep(wakeup_count, timeout_s)

    def _call(self, script: str, *arguments: Any) -> list[Any]:
        return self._member.call(script, *arguments, read=lambda reply: reply)

    def _ask(self, script: str, *arguments: Any) -> list[Any]:
        return self._member.ask(script, *arguments)

    def _unpack(self, place: bytes, value: bytes) -> Any:
        try:
            return self._codec.unpack(value)
        except CorruptItem as error:
            number = int(place[-16:])
            raise StorageError(f"{self._server.text}: item {number} cannot be read ({error})") from error


def _reopen(url: str, options: dict[str, Any]) -> RedisQueue:
    return RedisQueue(url, **options)
