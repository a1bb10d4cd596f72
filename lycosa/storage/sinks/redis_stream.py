"""Items as entries of a Redis stream, once: `open(position)` cuts off what was written after the committed position.

Positions hold the number of the writer (one crawl, or one worker of a shared one) and how many entries it wrote; each
writer cuts off its own entries only. Entries travel in batches, a script call each, which the server takes once however
often they are sent. It is waited for when it is away or full (`storage.sinks.redis_server`); what it lost of what it
had taken, when it comes back without its last second, is sent again as long as it is kept here.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections import deque
from typing import Any, NamedTuple

from lycosa.core.errors import BadItem, StateError, StorageError
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.core.stream_url import read_address
from lycosa.storage.sinks.json_lines import not_open, to_line
from lycosa.storage.sinks.redis_server import Say, StreamServer

BATCH_ITEMS = 512
BATCH_BYTES = 1024**2
BUFFER_MAX = 8 * 1024**2
"""Most bytes that wait in memory; with more, `write` waits for the server itself, and the whole crawl with it."""

KEPT_MAX = 8 * 1024**2
"""Bytes of batches that are kept after the server has taken them."""

ITEM_MAX = 256 * 1024**2
"""Largest item, in bytes; Redis takes half a gigabyte."""

FLUSHES_KEPT = 64
"""The crawl may return to the positions of so many flushes: a frontier that fails over may have lost some seconds."""

CLOSE_MAX_S = 0.3
"""A flush that was given up, and whose server is away, is waited for so long at the end."""

WRITERS = 1 << 26
ENTRIES_BITS = 37
"""A position is the number of the writer, and in so many bits that of its entries."""

FIELDS = 4
"""Of an entry, as the script takes them: key, segment, url, item."""


class Batch(NamedTuple):
    """Entries that travel together; `start` were written before them."""

    start: int
    size_bytes: int
    arguments: list[str | bytes]


class RedisStreamSink:
    """The stream at an address, for one crawl. `sync`: only a server that has every flush on the disk.

    Raises `UsageError` for an address that cannot be. `say` hears when the server is waited for.
    """

    def __init__(self, address: str, crawl: str, say: Say, *, sync: bool = False) -> None:
        self._address = read_address(address)
        self.name = f"stream:{self._address.place}"
        self._server = StreamServer(self._address, say)
        self._crawl, self._say, self._sync = crawl, say, sync
        self._lock = threading.Lock()
        self._token = ""
        """Of this time that it is open, "" when it is not."""
        self._writer = self._next = self._size_bytes = 0
        self._entries: list[str | bytes] = []
        self._unsent: deque[Batch] = deque()
        self._kept: deque[Batch] = deque()
        self._given_bytes = self._sent_bytes = self._kept_bytes = 0
        self._flushed: deque[int] = deque(maxlen=FLUSHES_KEPT)

    async def check(self) -> None:
        """Connect as a new writer, which is not there before it has written."""
        await self.open(None)
        await self.close()

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """Connect, and cut off what this crawl wrote behind `position`, unless to `keep` it. Return where it writes.

        None begins a new writer, 0 empties the stream as well, for all who write to it.
        """
        assert not self._token, "open"
        return await asyncio.to_thread(self._open, position, keep=keep)

    def prepare(self, item: Any) -> bytes:
        """Encode the item, so that it may change afterwards. Raises `BadItem`."""
        line = to_line(item)
        if len(line) > ITEM_MAX:
            raise BadItem(f"an item of {len(line):,} bytes is too large for a stream ({type(item).__qualname__})")
        return line

    def write(self, line: bytes, key: ItemKey) -> None:
        """Take what `prepare` returned."""
        name = key.text(self._crawl)
        if key.repeatable:
            name = f"{name}/{self._token}-{self._next + len(self._entries) // FIELDS}"
        self._entries += (name, key.segment, key.url, line)
        self._size_bytes += len(line) + len(name) + len(key.url)
        if self._size_bytes >= BATCH_BYTES or len(self._entries) >= FIELDS * BATCH_ITEMS:
            self._close_batch()
            if self._given_bytes - self._sent_bytes >= BUFFER_MAX:
                self._drain(threading.Event())

    async def flush(self) -> int:
        """Send everything written, and wait until the server has it. Return the position."""
        self._close_batch()
        hurry = threading.Event()
        try:
            await asyncio.to_thread(self._drain, hurry)
        except asyncio.CancelledError:
            hurry.set()  # the thread ends by itself; what it has not sent is sent by the next flush
            raise
        if self._flushed[-1] != self._next:
            self._flushed.append(self._next)
        return self._position

    async def close(self) -> None:
        """Let go of the server. What was not flushed is dropped."""
        await asyncio.to_thread(self._close)

    @property
    def _position(self) -> int:
        if self._next >> ENTRIES_BITS:
            raise StorageError(f"{self._address.place}: too many items for one crawl; give another stream=")
        return self._writer << ENTRIES_BITS | self._next

    def _keys(self) -> list[str]:
        ours = f"lycosa:stream:{{{self._address.stream}}}:{self._writer}"
        return [self._address.stream, ours, f"{ours}:batches"]

    def _open(self, position: int | None, *, keep: bool) -> int:
        self._server.connect(sync=self._sync)
        token = secrets.token_hex(8)
        try:
            if position:
                self._writer, committed = position >> ENTRIES_BITS, position & (1 << ENTRIES_BITS) - 1
                self._next = self._begin(token, committed, "keep" if keep else "cut")
            else:
                self._next = self._begin_anew(token, "new" if position is None else "empty")
        except BaseException:
            self._server.close()
            raise
        self._token = token
        self._flushed.clear()
        self._flushed.append(self._next)
        return self._position

    def _begin_anew(self, token: str, how: str) -> int:
        while True:
            self._writer = 1 + secrets.randbelow(WRITERS - 1)
            if (written := self._begin(token, 0, how)) >= 0:
                return written

    def _begin(self, token: str, committed: int, how: str) -> int:
        """Return how many entries this writer has, -1 when its number is taken."""
        status, *more = self._server.run("open", self._keys(), (token, committed, how), threading.Event())
        if status == "ok":
            return int(more[0])
        if status == "taken":
            return -1
        raise self._refusal(status, committed, *more)

    def _close_batch(self) -> None:
        if self._entries:
            self._unsent.append(Batch(self._next, self._size_bytes, self._entries))
            self._given_bytes += self._size_bytes
            self._next += len(self._entries) // FIELDS
            self._entries, self._size_bytes = [], 0

    def _drain(self, hurry: threading.Event) -> None:
        with self._lock:
            if not self._token:
                raise not_open(self._address.place)
            while self._unsent and not hurry.is_set():
                self._send(self._unsent[0], hurry)

    def _send(self, batch: Batch, hurry: threading.Event) -> None:
        safe = self._flushed[0] if len(self._flushed) == FLUSHES_KEPT else 0
        told = (self._token, batch.start, safe, self._address.maxlen, self._crawl)
        status, *more = self._server.run("write", self._keys(), (*told, *batch.arguments), hurry)
        if status == "behind":
            self._take_back(int(more[0]))
        elif status != "ok":
            raise self._refusal(status, batch.start, *more)
        else:
            self._unsent.popleft()
            self._sent_bytes += batch.size_bytes
            self._keep(batch)

    def _keep(self, batch: Batch) -> None:
        self._kept.append(batch)
        self._kept_bytes += batch.size_bytes
        while self._kept_bytes > KEPT_MAX:
            self._kept_bytes -= self._kept.popleft().size_bytes

    def _take_back(self, written: int) -> None:
        """Let be sent again what the server has lost. Raises `StorageError` when it is not kept any more."""
        had = self._unsent[0].start
        while self._kept and self._unsent[0].start > written:
            batch = self._kept.pop()
            self._kept_bytes -= batch.size_bytes
            self._sent_bytes -= batch.size_bytes
            self._unsent.appendleft(batch)
        if self._unsent[0].start > written:
            raise self._refusal("lost", had, written)
        self._say(f"{self._address.place}: the server has lost its last {had - written:,} items; they are sent again")

    def _refusal(self, status: str, committed: int, more: Any = 0) -> StateError:
        place = self._address.place
        match status:
            case "lost":
                what = f"the server has lost {committed - int(more):,} of {committed:,} items that this crawl wrote"
                return StorageError(f"{place}: {what}: {_ADVICE}")
            case "old":
                what = f"it has {int(more):,} items that the state of this crawl does not know, an old copy"
                return StorageError(f"{place}: {what}: {_ADVICE}")
            case "type":
                return StorageError(
                    f"{place}: there is a {more.decode()} of this name, no stream; give another stream="
                )
        what = "another process has opened it since with a copy of this state"
        return StorageError(f"{place}: {what}: each needs a --state of its own")

    def _close(self) -> None:
        while not self._lock.acquire(timeout=CLOSE_MAX_S):
            self._server.cut()  # a flush that nobody waits for stands before a server that is away
        try:
            self._entries, self._size_bytes = [], 0
            self._unsent.clear()
            self._kept.clear()
            self._given_bytes = self._sent_bytes = self._kept_bytes = 0
            self._token = ""
            self._server.close()
        finally:
            self._lock.release()


_ADVICE = "give another stream= to go on without them, or start afresh with -O"
