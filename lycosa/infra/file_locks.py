"""Giving up the lock of a file (flock)."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from typing import IO


def unlock(file: int | IO[str]) -> None:
    """Let others have the lock, before the file is closed.

    To close it is not enough: a child that was forked and does not run its program yet has the file open, too.
    """
    with suppress(OSError):  # some network file systems know no locks
        fcntl.flock(file, fcntl.LOCK_UN)
