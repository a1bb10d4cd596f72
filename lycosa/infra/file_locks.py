"""Lock files (flock): at most one process holds the lock of a file, which contains its process id.

Several processes can share the lock of a folder.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def lock_file(path: Path, mode: int) -> int:
    """Lock a file, which is created if missing, and write our process id into it. Return its descriptor.

    The lock ends with the process. Raises BlockingIOError if another process holds the lock, OSError if it fails.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except BaseException:
        os.close(handle)
        raise
    return handle


def lock_owner(path: Path) -> str:
    """Return the id of the process that holds or last held the lock; "unknown" if it cannot be read."""
    with suppress(OSError), path.open("rb") as file:
        return file.read(32).decode(errors="replace").strip() or "unknown"
    return "unknown"


def unlock_and_close(file: int) -> None:
    """Release a lock, and close the file.

    Closing alone is not enough: a forked child has the file open, and so keeps the lock, until it starts its program.
    """
    with suppress(OSError):  # some network file systems have no locks
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)


@contextmanager
def shared_lock(folder: Path) -> Iterator[None]:
    """Share a lock on a folder with other processes. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with suppress(OSError):  # some network file systems have no locks
            fcntl.flock(handle, fcntl.LOCK_SH)
        yield
    finally:
        unlock_and_close(handle)


def has_shared_lock(folder: Path) -> bool:
    """Return whether a process shares a lock on a folder; True if the system cannot tell. Raises OSError."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        unlock_and_close(handle)
    return False
