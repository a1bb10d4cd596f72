"""Files that survive a power loss, and errors of the disk and of LMDB as errors of Lycosa."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

import lmdb

from lycosa.core.errors import StateError, StorageError, StorageFull
from lycosa.infra.disk import AGAIN, NO_ROOM, is_full


def storage_error(path: Path, error: Exception) -> StateError:
    """Return an error of LMDB or of the disk as `StorageFull` or `StorageError`, with the path."""
    if isinstance(error, lmdb.MapFullError):
        return StorageFull(f"{path}: the state has reached its largest size")
    # LMDB reports a write for which there was room for a part only as an input/output error.
    if getattr(error, "errno", None) in NO_ROOM or "No space left" in str(error) or is_full(path):
        return StorageFull(f"{path}: no space left on the device{AGAIN}")
    # The messages of LMDB begin with the path that it was given.
    what = getattr(error, "strerror", None) or str(error).rpartition(": ")[2]
    return StorageError(f"{path}: the database of the state cannot be used ({what}); -O starts afresh")


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise what LMDB or the disk raises in the block as `storage_error`."""
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise storage_error(path, error) from error


def sync_file(path: Path) -> None:
    """Write the content of a file through to the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Write the names in a folder through to the disk. Without it a power loss may remove a new file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and write their names through to the disk."""
    fresh = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # Also if it exists: the process that made it may have been killed before its name was on the disk.
    for folder in fresh or [path]:
        sync_folder(folder.parent)


def replace_file(path: Path, data: bytes, *, sync: bool, mode: int = 0o666) -> None:
    """Replace a file: a reader finds the old content or the new one. With `sync` also after a power loss."""
    draft = path.with_name(path.name + ".new")
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
        stream.write(data)
        if sync:
            stream.flush()
            os.fsync(stream.fileno())
    draft.replace(path)
    if sync:
        sync_folder(path.parent)


def make_file(path: Path, data: bytes, *, replace: bool = False) -> bool:
    """Create a file that only our user may read, unless it exists; `replace` replaces an existing one.

    Readers never see a part of it. Return whether the file is ours: if several processes create it at once, one does.
    """
    handle, name = mkstemp(prefix=f"{path.name}.", dir=path.parent)
    draft = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        if replace:
            draft.replace(path)
        else:
            path.hardlink_to(draft)
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)
    return True
