"""Writes items as entries of a Redis stream, exactly once: `open(position)` cuts off entries after that position.

A position holds the id of the writer (a crawl, or one worker of a shared crawl) and the count of its entries. A writer
cuts off only its own entries. Entries are sent in batches, one script call each; a repeated batch is added once. The
sink waits while the server is unavailable or full. If a server restarts without the writes of its last second, the sink
sends the lost batches again, provided it still has them.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from typing import Any, NamedTuple

from lycosa.core.errors import BadItem, StateError, StorageError
from lycosa.infra.redis.server import Report
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.core.stream_url import read_address
from lycosa.storage.sinks.json_lines import not_open_error, to_line
from lycosa.storage.sinks.stream_server import FIELDS, StreamServer

BATCH_ITEMS = 512
BATCH_BYTES = 1024**2
BUFFER_MAX = 8 * 1024**2
"""Unsent bytes at which `write` blocks the crawl until the server has taken them."""

SENT_MAX = 8 * 1024**2
"""Maximum bytes of sent batches that are kept in case the server loses them."""

ITEM_MAX = 256 * 1024**2
"""The limit of Redis is twice as high."""

FLUSHES_KEPT = 64
"""Number of latest flushes whose positions are kept. A resumed crawl may return to any of them, because a failover may
lose the frontier's last seconds."""

CLOSE_MAX_S = 0.3
"""Seconds that `close` waits for a cancelled flush before it cuts the connection."""

WRITERS = 1 << 26
ENTRIES_BITS = 37
"""Number of low bits of a position that hold the count of entries. The bits above them hold the id of the writer."""


class EntryBatch(NamedTuple):
    """Entries that are sent together. `start` is the number of the writer's entries before them."""

    start: int
    size_bytes: int
    arguments: list[str | bytes]


class RedisStreamSink:
    """Writes the items of one crawl to a stream. With `sync`, the server must flush each write to its disk.

    `report` gets a message when the sink waits for the server. Raises `UsageError` for a bad address.
    """

    def __init__(self, address: str, crawl: str, report: Report, *, sync: bool = False) -> None:
        self._address = read_address(address)
        self.name = f"stream:{self._address.text}"
        self._server = StreamServer(self._address, report)
        self._crawl, self._report, self._sync = crawl, report, sync
        self._lock = threading.Lock()
        self._token = ""
        """The server refuses batches with this token after another process opens the writer. "" if not open."""
        self._writer = self._next = self._size_bytes = 0
        self._entries: list[str | bytes] = []
        self._unsent: deque[EntryBatch] = deque()
        self._sent: deque[EntryBatch] = deque()
        self._unsent_bytes = self._sent_bytes = 0
        self._flushed: deque[int] = deque(maxlen=FLUSHES_KEPT)

    async def check(self) -> None:
        # A new writer is stored with its first batch, so this changes nothing.
        await self.open(None)
        await self.close()

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Position None creates a new writer; 0 does so too, and empties the stream for all writers."""
        assert not self._token, "open"
        return await asyncio.to_thread(self._open, position, keep=keep)

    def prepare(self, item: Any) -> bytes:
        line = to_line(item)
        if len(line) > ITEM_MAX:
            raise BadItem(f"an item of {len(line):,} bytes is too large for a stream ({type(item).__qualname__})")
        return line

    def write(self, line: bytes, key: ItemKey) -> None:
        name = key.text(self._crawl)
        if key.repeatable:
            name = f"{name}/{self._token}-{self._next + len(self._entries) // FIELDS}"
        self._entries += (name, key.segment, key.url, line)
        self._size_bytes += len(line) + len(name) + len(key.url)
        if self._size_bytes >= BATCH_BYTES or len(self._entries) >= FIELDS * BATCH_ITEMS:
            self._close_batch()
            if self._unsent_bytes >= BUFFER_MAX:
                self._drain(threading.Event())

    async def flush(self) -> int:
        self._close_batch()
        stop = threading.Event()
        try:
            await asyncio.to_thread(self._drain, stop)
        except asyncio.CancelledError:
            stop.set()  # the thread ends soon; the next flush sends the remaining batches
            raise
        if self._flushed[-1] != self._next:
            self._flushed.append(self._next)
        return self._position

    async def close(self) -> None:
        await asyncio.to_thread(self._close)

    @property
    def _position(self) -> int:
        if self._next >> ENTRIES_BITS:
            raise StorageError(f"{self._address.text}: too many items for one crawl; give another stream=")
        return self._writer << ENTRIES_BITS | self._next

    def _keys(self) -> list[str]:
        # The hash tag puts all keys into the slot of the stream.
        writer = f"lycosa:stream:{{{self._address.stream}}}:{self._writer}"
        return [self._address.stream, writer, f"{writer}:batches"]

    def _open(self, position: int | None, *, keep: bool) -> int:
        self._server.connect(sync=self._sync)
        token = secrets.token_hex(8)
        try:
            if position:
                self._writer, committed = position >> ENTRIES_BITS, position & (1 << ENTRIES_BITS) - 1
                self._next = self._open_writer(token, committed, "keep" if keep else "cut")
            else:
                self._next = self._open_new_writer(token, "new" if position is None else "empty")
        except BaseException:
            self._server.close()
            raise
        self._token = token
        self._flushed.clear()
        self._flushed.append(self._next)
        return self._position

    def _open_new_writer(self, token: str, mode: str) -> int:
        while True:
            self._writer = 1 + secrets.randbelow(WRITERS - 1)
            if (written := self._open_writer(token, 0, mode)) >= 0:
                return written

    def _open_writer(self, token: str, committed: int, mode: str) -> int:
        """Return the number of entries of this writer; -1 if another writer has its id."""
        status, *more = self._server.run("open_writer", self._keys(), (token, committed, mode), threading.Event())
        if status == "ok":
            return int(more[0])
        if status == "taken":
            return -1
        raise self._refusal(status, committed, *more)

    def _close_batch(self) -> None:
        if self._entries:
            self._unsent.append(EntryBatch(self._next, self._size_bytes, self._entries))
            self._unsent_bytes += self._size_bytes
            self._next += len(self._entries) // FIELDS
            self._entries, self._size_bytes = [], 0

    def _drain(self, stop: threading.Event) -> None:
        with self._lock:
            if not self._token:
                raise not_open_error(self._address.text)
            while self._unsent and not stop.is_set():
                self._send(self._unsent[0], stop)

    def _send(self, batch: EntryBatch, stop: threading.Event) -> None:
        safe = self._flushed[0] if len(self._flushed) == FLUSHES_KEPT else 0
        header = (self._token, batch.start, safe, self._address.maxlen, self._crawl)
        status, *more = self._server.run("write_batch", self._keys(), (*header, *batch.arguments), stop)
        if status == "behind":
            self._requeue_lost(int(more[0]))
        elif status != "ok":
            raise self._refusal(status, batch.start, *more)
        else:
            self._sent.append(self._unsent.popleft())
            self._unsent_bytes -= batch.size_bytes
            self._sent_bytes += batch.size_bytes
            while self._sent_bytes > SENT_MAX:
                self._sent_bytes -= self._sent.popleft().size_bytes

    def _requeue_lost(self, written: int) -> None:
        """Queue again the batches that the server has lost: it has only the first `written` entries of this writer.

        Raises `StorageError` if some of them are no longer kept.
        """
        had = self._unsent[0].start
        while self._sent and self._unsent[0].start > written:
            batch = self._sent.pop()
            self._sent_bytes -= batch.size_bytes
            self._unsent_bytes += batch.size_bytes
            self._unsent.appendleft(batch)
        if self._unsent[0].start > written:
            raise self._refusal("lost", had, written)
        self._report(f"{self._address.text}: the server has lost its last {had - written:,} items; they are sent again")

    def _refusal(self, status: str, committed: int, more: Any = 0) -> StateError:
        stream = self._address.text
        match status:
            case "lost":
                what = f"the server has lost {committed - int(more):,} of {committed:,} items that this crawl wrote"
                return StorageError(f"{stream}: {what}: {_ADVICE}")
            case "too old":
                what = f"this crawl's state is an old copy that lacks {int(more):,} items of this stream"
                return StorageError(f"{stream}: {what}: {_ADVICE}")
            case "type":
                return StorageError(f"{stream}: this is a {more.decode()}, not a stream; give another stream=")
        what = "another process has since opened it with a copy of this state"
        return StorageError(f"{stream}: {what}: give each process a separate --state")

    def _close(self) -> None:
        while not self._lock.acquire(timeout=CLOSE_MAX_S):
            self._server.disconnect()  # the thread of a cancelled flush may still wait for the server
        try:
            self._entries, self._size_bytes = [], 0
            self._unsent.clear()
            self._sent.clear()
            self._unsent_bytes = self._sent_bytes = 0
            self._token = ""
            self._server.close()
        finally:
            self._lock.release()


_ADVICE = "give another stream= to continue without them, or start afresh with -O"
