"""The folder in which a pool of proxies is kept, as its one owner sees it.

DIR/lock        locked while a process owns the pool; holds its process id
DIR/pool        the pool as it was when the journal of its generation began; replaced as a whole
DIR/journal.7   what has changed since then (`proxies.core.recorded_pool`), one checksummed frame a record
DIR/socket      where a live owner answers other processes

A record is in the hands of the operating system before anybody hears of what it says: so all that was answered
survives `kill -9`. A process that is killed in the middle of a record leaves a torn end, which is passed over; anything
else that is not as it was written is damage. Logins are in these files: only our own user may read them.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct

from xxhash import xxh3_64_intdigest

from lycosa.core.errors import ForeignState, NewerState, StateError, StateLocked, StorageError
from lycosa.infra.disk import not_written
from lycosa.infra.file_locks import unlock

MAGIC, VERSION = b"LyPP", 1
IMAGE_HEAD = Struct("<4sIQQ")
"""Magic, version, generation, checksum of the rest."""

FRAME_HEAD = Struct("<IQ")
"""Length and checksum (xxh3, with the generation as its seed)."""

LOCK, IMAGE, JOURNAL, SOCKET = "lock", "pool", "journal.", "socket"
JOURNAL_MIN = 4 << 20
"""A journal grows to so many bytes, or to as many as the image has, before a new image takes its place."""

RECORD_MAX = 4 << 20
"""Bytes of a record; what is longer is kept by a new image."""

WHEN_FULL = " for the pool of proxies: free some, and it goes on"
REPAIR = "put back a copy of the folder, or delete it and add the proxies again"


class Folder:
    """An owned folder. Raises `StateLocked`, `ForeignState`, `NewerState`, `StorageFull` or `StorageError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self._journal = -1
        self._size = self._size_max = self._image_size = 0
        self._lock = _locked(path)

    @property
    def socket(self) -> Path:
        """Where the owner answers others."""
        return self.path / SOCKET

    @property
    def is_whole(self) -> bool:
        """Whether the journal has all that has changed since the image; else a new image has to be kept."""
        return self._journal >= 0

    @property
    def is_long(self) -> bool:
        """Whether a new image should take the place of the journal."""
        return self._size > self._size_max

    def read(self) -> tuple[bytes, list[bytes]]:
        """Return the image, empty for a new pool, and the records after it."""
        try:
            whole = (self.path / IMAGE).read_bytes()
        except FileNotFoundError:
            return b"", []
        except OSError as error:
            raise _ours(self.path / IMAGE, error) from error
        self.generation, image = self._image(whole)
        self._image_size = len(image)
        return image, list(_frames(self.path / f"{JOURNAL}{self.generation}", self.generation))

    @property
    def is_unchanged(self) -> bool:
        """Whether nothing was written since the image."""
        return self.is_whole and not self._size

    def resume(self) -> bool:
        """Go on with the journal that was read, if nothing is in it yet; else a new image has to be kept."""
        journal = self.path / f"{JOURNAL}{self.generation}"
        if not self.generation:
            return False
        try:
            opened = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if os.fstat(opened).st_size:
                os.close(opened)
                return False
        except OSError as error:
            raise _ours(journal, error) from error
        self._journal, self._size_max = opened, max(JOURNAL_MIN, self._image_size)
        return True

    def keep(self, image: bytes) -> None:
        """Replace what is kept by a new image, and begin a new journal."""
        generation = self.generation + 1
        head = IMAGE_HEAD.pack(MAGIC, VERSION, generation, xxh3_64_intdigest(image, generation))
        journal = self.path / f"{JOURNAL}{generation}"
        try:
            opened = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _ours(journal, error) from error
        try:
            _replace(self.path / IMAGE, head + image)
        except OSError as error:
            os.close(opened)
            raise _ours(self.path, error) from error
        self._close_journal()
        self._journal, self._size, self._size_max = opened, 0, max(JOURNAL_MIN, len(image))
        self.generation = generation
        for old in self.path.glob(f"{JOURNAL}*"):
            if old != journal:
                old.unlink(missing_ok=True)

    def put_off(self) -> None:
        """Let the journal grow on, for a while."""
        self._size_max += JOURNAL_MIN

    def append(self, record: bytes) -> None:
        """Write a record. When it is too long, or that fails, the journal is not whole any more."""
        if len(record) > RECORD_MAX:
            self._close_journal()
            return
        frame = FRAME_HEAD.pack(len(record), xxh3_64_intdigest(record, self.generation)) + record
        try:
            written = os.write(self._journal, frame)
        except OSError as error:
            self._close_journal()
            raise _ours(self.path, error) from error
        if written < len(frame):
            self._close_journal()
            raise _ours(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._size += len(frame)

    def close(self) -> None:
        """Give the folder free."""
        self._close_journal()
        unlock(self._lock)
        os.close(self._lock)

    def _close_journal(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    def _image(self, whole: bytes) -> tuple[int, bytes]:
        path = self.path / IMAGE
        if len(whole) < IMAGE_HEAD.size or whole[: len(MAGIC)] != MAGIC:
            raise ForeignState(f"{path} is not that of a pool of proxies: give another folder")
        _, version, generation, checksum = IMAGE_HEAD.unpack_from(whole)
        if version > VERSION:
            raise NewerState(f"{path} has version {version}, this Lycosa reads up to {VERSION}: upgrade Lycosa")
        image = whole[IMAGE_HEAD.size :]
        if xxh3_64_intdigest(image, generation) != checksum:
            raise StorageError(f"{path} is damaged: {REPAIR}")
        return generation, image


def is_there(path: Path) -> bool:
    """Whether there is a pool in this folder, or the beginning of one; what cannot be looked into may be one."""
    try:
        return (path / IMAGE).is_file() or (path / LOCK).is_file()
    except OSError:
        return True


def owner_of(path: Path) -> str:
    """Return the process that owns the pool in this folder, or owned it last."""
    with suppress(OSError), (path / LOCK).open("rb") as file:
        return file.read(32).decode(errors="replace").strip() or "unknown"
    return "unknown"


def damaged(path: Path, why: object) -> StorageError:
    """Return the error for what cannot be read, although it is as it was written."""
    return StorageError(f"{path} cannot be read ({why}): {REPAIR}")


def _locked(path: Path) -> int:
    try:
        _refuse_foreign(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _ours(path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except OSError as error:
        os.close(handle)
        if isinstance(error, BlockingIOError):
            raise StateLocked(f"{path}: the pool is open in process {owner_of(path)}") from error
        raise _ours(path, error) from error
    return handle


def _refuse_foreign(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise ForeignState(f"{path} is a file: a pool of proxies is kept in a folder")
    names = {entry.name for entry in path.iterdir()}
    if IMAGE not in names and any(name not in {LOCK, SOCKET, f"{IMAGE}.new"} and JOURNAL not in name for name in names):
        raise ForeignState(f"{path} holds something else than a pool of proxies: give an empty or new folder")


def _replace(path: Path, data: bytes) -> None:
    """Replace a file as a whole, for certain: whoever reads it, after a power loss too, finds the old or the new."""
    draft = path.with_name(f"{path.name}.new")
    with open(draft, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _frames(path: Path, generation: int) -> Iterator[bytes]:
    """Yield the records of a journal. It may end torn; what is no frame before its end is damage."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return  # killed before it began
    except OSError as error:
        raise _ours(path, error) from error
    at = 0
    while at < len(data):
        record = _frame(data, at, generation)
        if record is None:
            if len(data) - at > RECORD_MAX + FRAME_HEAD.size or _goes_on(data, at, generation):
                raise StorageError(f"{path} is damaged at byte {at:,}: {REPAIR}")
            return
        yield record
        at += FRAME_HEAD.size + len(record)


def _frame(data: bytes, at: int, generation: int) -> bytes | None:
    """Return the record of the frame that begins there, None when none does."""
    if at + FRAME_HEAD.size > len(data):
        return None
    length, checksum = FRAME_HEAD.unpack_from(data, at)
    begin = at + FRAME_HEAD.size
    if begin + length > len(data):
        return None
    record = data[begin : begin + length]
    return record if xxh3_64_intdigest(record, generation) == checksum else None


def _goes_on(data: bytes, at: int, generation: int) -> bool:
    """Whether there is a whole frame behind one that is none: then that is not the torn end of a killed process."""
    return any(_frame(data, each, generation) is not None for each in range(at + 1, len(data)))


def _ours(path: Path, error: OSError) -> StateError:
    return not_written(path, error, "the pool of proxies cannot be kept", WHEN_FULL)
