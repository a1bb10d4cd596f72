"""Errors of failed writes to files."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

from lycosa.core.errors import StateError, StorageError, StorageFull

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The device or the user's quota is full, or the file has its maximum size."""

FREE_MIN_BYTES = 64 * 1024
"""With less free space than this, a write error without a clear reason counts as lack of space."""

FREE_SPACE_ADVICE = "; free some and run the same command again"


def write_error(path: Path, error: OSError, what: str, when_full: str = FREE_SPACE_ADVICE) -> StateError:
    """Return `StorageFull`, or `StorageError` with `what` and the reason."""
    if error.errno in NO_ROOM:
        return StorageFull(f"{path}: no space left on the device{when_full}")
    return StorageError(f"{path}: {what}: {(error.strerror or str(error)).lower()}")


def is_full(path: Path, free_min: int = 0) -> bool:
    """Return whether less than max(`free_min`, FREE_MIN_BYTES) is free on the disk of a path, which may be missing."""
    try:
        return shutil.disk_usage(path if path.exists() else path.parent).free < max(free_min, FREE_MIN_BYTES)
    except OSError:
        return False
