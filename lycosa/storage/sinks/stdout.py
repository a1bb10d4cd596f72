"""Writes each item to standard output at least once, as JSON lines unless another format is given.

A resumed crawl may print some items again. The position is always 0. `flush` waits for a slow reader without blocking
the event loop. If the reader closes the pipe, the crawl ends with a `StorageError`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import stat
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.codecs import BEGINNING_MAX
from lycosa.storage.sinks.formats import ItemFormat, JsonLines, encoded_size
from lycosa.storage.sinks.json_lines import not_open_error, write_error

BUFFER_MAX = 1024**2
"""Buffered bytes at which `write` blocks the crawl until the reader has taken them."""

CHUNK_BYTES = select.PIPE_BUF
"""A pipe that is ready takes this many bytes without blocking."""


class StdoutSink:
    """Writes items to a file descriptor, which stays open."""

    name = "stdout"

    def __init__(self, fd: int = 1, layout: ItemFormat | None = None) -> None:
        self._fd = fd
        self._format = JsonLines() if layout is None else layout
        self._items: list[Any] = []
        self._pending_bytes = 0
        self._unsent = memoryview(b"")
        self._never_blocks = self._is_open = False
        self._poll = select.poll()  # select takes no descriptors from 1,024 on, and a crawl may have more

    async def check(self) -> None:
        try:
            writable = fcntl.fcntl(self._fd, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
        except OSError:
            writable = False
        if not writable:
            raise StorageError("standard output is closed: write the items to a file with -o FILE")

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        await self.check()
        self._never_blocks = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._format.resume(self._beginning() if position is not None else b"")
        self._poll.register(self._fd, select.POLLOUT)
        self._is_open = True
        return 0

    def prepare(self, item: Any) -> Any:
        return self._format.prepare(item)

    def write(self, prepared: Any, key: ItemKey) -> None:
        self._items.append(prepared)
        self._pending_bytes += encoded_size(prepared)
        if self._pending_bytes >= BUFFER_MAX:
            if not self._is_open:
                raise not_open_error("standard output")
            self._take_items()
            while self._unsent:
                self._send(len(self._unsent))

    async def flush(self) -> int:
        """Write all items, including those added meanwhile: the caller may commit every item when this returns."""
        if not self._is_open:
            raise not_open_error("standard output")
        while self._items or self._unsent:
            self._take_items()
            if self._never_blocks:
                self._send(len(self._unsent))
            else:
                await self._wait_for_room()
                self._send(CHUNK_BYTES)
        return 0

    async def close(self) -> None:
        self._is_open = False
        self._format.close()
        self._items.clear()
        self._unsent = memoryview(b"")
        self._pending_bytes = 0

    def _beginning(self) -> bytes:
        """Return the beginning of the file that a resumed crawl appends to (`>> FILE`), or b""."""
        if not (self._never_blocks and fcntl.fcntl(self._fd, fcntl.F_GETFL) & os.O_APPEND):
            return b""
        try:
            # Opened again: the descriptor itself may be write-only.
            with Path(f"/proc/self/fd/{self._fd}").open("rb") as file:
                return file.read(BEGINNING_MAX)
        except OSError:
            return b""

    def _take_items(self) -> None:
        if self._items:
            self._unsent = memoryview(bytes(self._unsent) + self._format.encode(self._items))
            self._format.encoded()
            self._items.clear()
        self._pending_bytes = 0

    def _send(self, size_max: int) -> None:
        try:
            self._unsent = self._unsent[os.write(self._fd, self._unsent[:size_max]) :]
        except BlockingIOError:
            self._poll.poll()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise StorageError(
                "standard output was closed by its reader; the same command resumes the crawl"
            ) from error
        except OSError as error:
            raise write_error("standard output", error) from error

    async def _wait_for_room(self) -> None:
        if self._poll.poll(0):
            return
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_writer(self._fd, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_writer(self._fd)
