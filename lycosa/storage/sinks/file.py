"""Items in a file, exactly once: `open(position)` cuts off what was written after the committed position.

Records are those of an `ItemFormat`, compressed by a `Codec`. Positions are bytes from the start of the file. After
every `flush`, even a failed one, the file ends with a complete record or frame. One process writes a file at a time (an
advisory lock). Raises `StorageFull` or `StorageError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.infra.durable_files import sync_folder
from lycosa.infra.file_locks import unlock_and_close
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.codecs import BEGINNING_MAX, PLAIN, Codec
from lycosa.storage.sinks.formats import ItemFormat, JsonLines, encoded_size
from lycosa.storage.sinks.json_lines import not_open_error, write_error

BUFFER_MAX = 8 * 1024**2
"""Maximum number of bytes held in memory; beyond that, `write` hands them to the operating system."""


class FileSink:
    """A file of records. `sync`: every flush reaches the disk, not just the operating system."""

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
        folder = self._folder()
        with self._storage_errors():
            try:
                fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                if not os.access(folder, os.W_OK | os.X_OK):
                    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
                return
        try:
            self._claim(fd)
        finally:
            unlock_and_close(fd)

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        """See `Sink`; the position is always at the start of a line or frame."""
        assert self._fd < 0, "open"
        self._fd = self._open_file(must_exist=bool(position))
        try:
            if position is not None:
                self._check_position(position)
            if position is None or keep:
                self._position = self._end_of_lines()
            else:
                with self._storage_errors():
                    os.ftruncate(self._fd, position)
                self._position = position
            with self._storage_errors():
                beginning = os.pread(self._fd, BEGINNING_MAX, 0)
            self._format.resume(self._codec.beginning(beginning) if beginning else b"")
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
        """See `Sink`. Blocks the loop for one write. After an error the next flush writes everything again."""
        self._drain()
        if self._sync:
            with self._storage_errors():
                os.fsync(self._fd)
        return self._position

    async def close(self) -> None:
        self._items.clear()
        self._pending_bytes = 0
        self._format.close()
        with self._storage_errors():
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

    def _open_file(self, *, must_exist: bool) -> int:
        fresh = not os.path.lexists(self.path)
        if fresh and must_exist:
            raise StorageError(f"{self._shown} no longer exists, but the crawl wrote items to it: {_ADVICE}")
        parent = self._folder()
        with self._storage_errors():
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._claim(fd)
            if self._sync:  # even if the file existed: the process that created it may have been killed before this
                with self._storage_errors():
                    sync_folder(parent)
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _folder(self) -> Path:
        folder = Path(self.path).parent
        if not folder.is_dir():
            raise StorageError(f"{self._shown}: there is no folder {folder}")
        return folder

    def _claim(self, fd: int) -> None:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise StorageError(f"{self._shown} is not a regular file: items go to a file, or to standard output (-o -)")
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageError(f"{self._shown}: another process writes to it; give every crawl its own file") from None
        except OSError as error:
            # Some network file systems have no locks: write without one.
            if error.errno not in {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}:
                raise write_error(self._shown, error) from error

    def _end_of_lines(self) -> int:
        """Return where the next line starts. A last line without a newline, left by another program, gets one."""
        with self._storage_errors():
            end = os.fstat(self._fd).st_size
            if end and not self._codec.suffix and os.pread(self._fd, 1, end - 1) != b"\n":
                end += os.pwrite(self._fd, b"\n", end)
        return end

    def _check_position(self, position: int) -> None:
        with self._storage_errors():
            size = os.fstat(self._fd).st_size
            last = os.pread(self._fd, 1, position - 1) if position else b"\n"
        if last == b"\n" or (self._codec.suffix and size >= position):
            return
        what = f"holds {size:,} bytes, but the crawl wrote {position:,}" if size < position else "has other content now"
        raise StorageError(f"{self._shown} was cut, edited or replaced ({what}): {_ADVICE}")

    def _close_file(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            unlock_and_close(fd)

    @contextlib.contextmanager
    def _storage_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise write_error(self._shown, error) from error


_ADVICE = "restore the file, or start afresh with -O"
