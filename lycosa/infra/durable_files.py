"""Write files that survive a power loss, and translate errors of the disk and of LMDB."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp

import lmdb

from lycosa.core.errors import DamagedState, StateError, StorageFull
from lycosa.infra.disk import FREE_SPACE_ADVICE, NO_ROOM, is_full

DAMAGE_ADVICE = "restore the state from a backup, or start afresh with -O"


def storage_error(path: Path, error: Exception) -> StateError:
    """Translate an error of LMDB or of the disk into `StorageFull` or `DamagedState`."""
    if isinstance(error, lmdb.MapFullError):
        return StorageFull(f"{path}: the state has reached its maximum size")
    # LMDB reports a partial write on a full disk as an input/output error.
    if getattr(error, "errno", None) in NO_ROOM or "No space left" in str(error) or is_full(path):
        return StorageFull(f"{path}: no space left on the device{FREE_SPACE_ADVICE}")
    # LMDB's messages begin with the path.
    what = getattr(error, "strerror", None) or str(error).rpartition(": ")[2]
    return DamagedState(f"{path}: the database of the state cannot be used ({what})", advice="-O starts afresh")


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Translate errors in the block with `storage_error`."""
    try:
        yield
    except (lmdb.Error, OSError) as error:
        raise storage_error(path, error) from error


def sync_file(path: Path) -> None:
    """Flush the content of a file to the disk."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk. Without this a power loss may remove a new file."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, and flush their names to the disk."""
    fresh = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    # Flush the name even if the folder exists: its creator may have been killed before doing so.
    for folder in fresh or [path]:
        sync_folder(folder.parent)


def replace_file(path: Path, data: bytes, *, sync: bool, mode: int = 0o666) -> None:
    """Replace a file atomically: it has the old or the new content; with `sync`, even after a power loss."""
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
    """Create a file that only our user may read. With `replace`, replace an existing one.

    Readers never see a partial file. Return False if the file existed, or another process wrote it first.
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
