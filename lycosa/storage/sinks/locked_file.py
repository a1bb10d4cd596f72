"""Opens and locks regular files for items: only one process writes to a file. Raises `StorageError`, `StorageFull`."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lycosa.core.errors import StorageError
from lycosa.infra.durable_files import sync_folder
from lycosa.infra.file_locks import unlock_and_close
from lycosa.storage.sinks.json_lines import write_error

RESTORE_ADVICE = "restore the file, or start afresh with -O"


def open_locked(path: str | Path, shown: str, *, must_exist: bool = False, sync: bool = False) -> int:
    """Open and lock a file. Creates it if needed. `shown` is its name in messages."""
    if must_exist and not os.path.lexists(path):
        raise StorageError(f"{shown} no longer exists, but the crawl wrote items to it: {RESTORE_ADVICE}")
    parent = _folder(path, shown)
    with storage_errors(shown):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        _lock(fd, shown)
        if sync:  # even if the file existed: its creator may have been killed before it synced the folder
            with storage_errors(shown):
                sync_folder(parent)
    except BaseException:
        os.close(fd)
        raise
    return fd


def check_file(path: str | Path, shown: str) -> None:
    """Raise the error that `open_locked` would raise, without changing anything."""
    parent = _folder(path, shown)
    with storage_errors(shown):
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            if not os.access(parent, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from None
            return
    try:
        _lock(fd, shown)
    finally:
        unlock_and_close(fd)


@contextmanager
def storage_errors(shown: str) -> Iterator[None]:
    """Translate errors of system calls on the file."""
    try:
        yield
    except OSError as error:
        raise write_error(shown, error) from error


def _folder(path: str | Path, shown: str) -> Path:
    folder = Path(path).parent
    if not folder.is_dir():
        raise StorageError(f"{shown}: there is no folder {folder}")
    return folder


def _lock(fd: int, shown: str) -> None:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        raise StorageError(f"{shown} is not a regular file: items go to a file, or to standard output (-o -)")
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise StorageError(f"{shown}: another process writes to it; give every crawl its own file") from None
    except OSError as error:
        # Some network file systems have no locks: write without one.
        if error.errno not in {errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}:
            raise write_error(shown, error) from error
