"""Writes items to a file, exactly once: `open(position)` cuts off everything after the committed position.

A position is a number of bytes. After every `flush`, even a failed one, the file ends with a complete record or frame.
Only one process at a time writes a file (an advisory lock). Raises `StorageFull` or `StorageError`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.infra.file_locks import unlock_and_close
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.codecs import BEGINNING_MAX, PIECE_BYTES, PLAIN, Codec
from lycosa.storage.sinks.formats import ItemFormat, JsonLines, encoded_size
from lycosa.storage.sinks.json_lines import not_open_error, write_error
from lycosa.storage.sinks.locked_file import RESTORE_ADVICE, check_file, open_locked, storage_errors

BUFFER_MAX = 8 * 1024**2
"""Bytes held in memory; beyond that, `write` hands them to the operating system."""


class FileSink:
    """Writes records to a file. With `sync`, every flush reaches the disk, not just the operating system."""

    def __init__(
        self, path: str | Path, layout: ItemFormat | None = None, codec: Codec = PLAIN, *, sync: bool = False
    ) -> None:
        self.path = os.path.realpath(path)
        self._format = JsonLines() if layout is None else layout
        self._codec = codec
        self.name = f"{self._format.name}{codec.suffix}:{self.path}"
        self._shown = os.fspath(path)
        self._sync = sync
        self._fd = -1
        self._position = 0
        self._items: list[Any] = []
        self._pending_bytes = 0

    async def check(self) -> None:
        check_file(self.path, self._shown)

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """The position is always at the start of a record or frame."""
        assert self._fd < 0, "open"
        self._fd = open_locked(self.path, self._shown, must_exist=bool(position), sync=self._sync)
        try:
            if position is not None:
                self._check_position(position)
            if position is None or keep:
                position = self._end_of_records(position or 0)
            with storage_errors(self._shown):
                beginning = os.pread(self._fd, min(position, BEGINNING_MAX), 0)
            self._format.resume(self._decompress(beginning) if beginning else b"")
            with storage_errors(self._shown):
                os.ftruncate(self._fd, position)
            self._position = position
        except BaseException:
            self._close_file()
            raise
        return self._position

    def prepare(self, item: Any) -> Any:
        return self._format.prepare(item)

    def write(self, prepared: Any, key: ItemKey) -> None:
        self._items.append(prepared)
        self._pending_bytes += encoded_size(prepared)
        if self._pending_bytes >= BUFFER_MAX:
            self._drain()

    async def flush(self) -> int:
        """Blocks the loop, with `sync` until the data is on the disk. After a failed write, the next repeats it."""
        self._drain()
        if self._sync:
            with storage_errors(self._shown):
                os.fsync(self._fd)
        return self._position

    async def close(self) -> None:
        self._items.clear()
        self._pending_bytes = 0
        self._format.close()
        with storage_errors(self._shown):
            self._close_file()

    def _drain(self) -> None:
        if self._fd < 0:
            raise not_open_error(self._shown)
        if not self._items:
            return
        data = memoryview(self._codec.compress(self._format.encode(self._items)))
        written = 0
        try:
            while written < len(data):
                written += os.pwrite(self._fd, data[written:], self._position + written)
        except OSError as error:
            with contextlib.suppress(OSError):  # leave no part of a record behind
                os.ftruncate(self._fd, self._position)
            raise write_error(self._shown, error) from error
        self._format.encoded()
        self._position += written
        self._items.clear()
        self._pending_bytes = 0

    def _end_of_records(self, start: int) -> int:
        """Return where the next record starts. Adds a newline if another program wrote the last line without one."""
        with storage_errors(self._shown):
            end = os.fstat(self._fd).st_size
            if end and not self._codec.suffix and os.pread(self._fd, 1, end - 1) != b"\n":
                end += os.pwrite(self._fd, b"\n", end)
        if self._codec.suffix and end > start:
            self._check_frames(start, end)
        return end

    def _check_frames(self, start: int, end: int) -> None:
        """Raise `StorageError` if a compressed file, read from `start`, does not end with a complete frame.

        Readers would not find data appended to an incomplete frame.
        """

        def pieces() -> Iterator[bytes]:
            for at in range(start, end, PIECE_BYTES):
                yield os.pread(self._fd, PIECE_BYTES, at)

        with storage_errors(self._shown):
            try:
                complete = start + self._codec.end_of_frames(pieces())
            except ValueError:
                complete = -1
        if complete != end:
            raise StorageError(
                f"{self._shown} is not a complete {self._codec.suffix} file, so appended items could not be read: "
                "repair it, or name another file"
            )

    def _decompress(self, beginning: bytes) -> bytes:
        try:
            return self._codec.beginning(beginning)
        except ValueError:
            raise StorageError(f"{self._shown} is not a {self._codec.suffix} file: {RESTORE_ADVICE}") from None

    def _check_position(self, position: int) -> None:
        with storage_errors(self._shown):
            size = os.fstat(self._fd).st_size
            if self._codec.suffix:
                magic = self._codec.magic
                starts = [os.pread(self._fd, len(magic), at) for at in ((0, position) if position else ())]
                is_ours = size >= position and all(magic.startswith(start) for start in starts)
            else:
                is_ours = not position or os.pread(self._fd, 1, position - 1) == b"\n"
        if is_ours:
            return
        what = f"holds {size:,} bytes, but the crawl wrote {position:,}" if size < position else "has other content now"
        raise StorageError(f"{self._shown} was cut, edited or replaced ({what}): {RESTORE_ADVICE}")

    def _close_file(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            unlock_and_close(fd)
