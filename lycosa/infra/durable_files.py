"""Errors of the disk and of LMDB as ours, and what it takes to have a file on the disk for certain."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import mkstemp

import lmdb

from lycosa.core.errors import StateError, StorageError, StorageFull
from lycosa.infra.disk import NO_ROOM, is_full


def storage_error(path: Path, error: Exception) -> StateError:
    """Turn what LMDB or the disk raise into `StorageFull` or `StorageError`, with the path."""
    if isinstance(error, lmdb.MapFullError):
        return StorageFull(f"{path}: the state has reached its largest size")
    # LMDB calls a write that found room for a part only an input/output error.
    if getattr(error, "errno", None) in NO_ROOM or "No space left" in str(error) or is_full(path):
        return StorageFull(f"{path}: no space left on the device; free some and run the same command again")
    # LMDB begins with the path it was given, and ends with what happened.
    what = getattr(error, "strerror", None) or str(error).rpartition(": ")[2]
    return StorageError(f"{path}: the database of the state cannot be used ({what}); -O starts afresh")


def sync_file(path: Path) -> None:
    """Force the content of a file to the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk: without it a new file may be gone after a power loss."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and force their names to the disk.

    Also when it is there: whoever made it may have been killed before its name was on the disk.
    """
    fresh = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in fresh or [path]:
        sync_folder(folder.parent)


def replace_file(path: Path, data: bytes, *, sync: bool) -> None:
    """Replace a file as a whole: whoever reads it finds the old content or the new."""
    draft = path.with_name(path.name + ".new")
    with draft.open("wb") as stream:
        stream.write(data)
        if sync:
            stream.flush()
            os.fsync(stream.fileno())
    draft.replace(path)
    if sync:
        sync_folder(path.parent)


def make_file(path: Path, data: bytes, *, anew: bool = False) -> bool:
    """Make a file that only our user may read, unless it is there; `anew` replaces what is there.

    Whoever reads it finds it whole. Return whether it is ours: of several processes that make it at once one does.
    """
    handle, name = mkstemp(prefix=f"{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        if anew:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
