"""What it means that the system could not write a file: there is no room, or anything else."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from lycosa.core.errors import StateError, StorageError, StorageFull

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The device is full, or what this user may have of it, or a file as large as it may be."""

FREE_MIN_BYTES = 64 * 1024
"""With less room than this on the device, that is why a write failed."""

AGAIN = "; free some and run the same command again"


def not_written(path: Path, error: OSError, what: str, when_full: str = AGAIN) -> StateError:
    """Return the error for a path that cannot be written: no room, and `when_full`, or `what` and why."""
    if error.errno in NO_ROOM:
        return StorageFull(f"{path}: no space left on the device{when_full}")
    return StorageError(f"{path}: {what}: {(error.strerror or str(error)).lower()}")


def is_full(path: Path) -> bool:
    """Return whether a write to this path failed for want of room, where the error does not say why it failed."""
    try:
        return shutil.disk_usage(path if path.exists() else path.parent).free < FREE_MIN_BYTES
    except OSError:
        return False
