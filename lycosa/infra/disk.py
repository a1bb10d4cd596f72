"""What it means that the system could not write a file: there is no room, or anything else."""

from __future__ import annotations

import errno
from pathlib import Path

from lycosa.core.errors import StateError, StorageError, StorageFull

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The device is full, or what this user may have of it, or a file as large as it may be."""

AGAIN = "; free some and run the same command again"


def write_error(path: Path, error: OSError, what: str, when_full: str = AGAIN) -> StateError:
    """Return the error for a path that cannot be written: no room, and `when_full`, or `what` and why."""
    if error.errno in NO_ROOM:
        return StorageFull(f"{path}: no space left on the device{when_full}")
    return StorageError(f"{path}: {what}: {(error.strerror or str(error)).lower()}")
