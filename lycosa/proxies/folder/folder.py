"""The folder of a proxy pool, read and written by the one process that owns it.

    DIR/lock        locked while a process owns the pool; holds its process id
    DIR/pool        the image: a snapshot of the pool from the moment the journal begins; replaced as a whole
    DIR/journal.7   the changes since then (`proxies.core.pool.journal`), one checksummed frame per record
    DIR/socket      the socket on which the running owner serves other processes

A record is passed to the operating system before any caller gets a reply, so `kill -9` loses nothing that was
confirmed. It may leave an incomplete last record, which is ignored. Any other damage is an error. The files contain
logins: only the user of this process may read them.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from struct import Struct

from xxhash import xxh3_64_intdigest

from lycosa.core.errors import ForeignState, NewerState, StateError, StateLocked, StorageError
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import replace_file
from lycosa.infra.file_locks import lock_file, lock_owner, unlock_and_close
from lycosa.infra.frames import HEAD, encode_frame, frame_at

MAGIC, VERSION = b"LyPP", 3
IMAGE_HEAD = Struct("<4sIQQ")
"""Magic, version, generation, checksum of the rest."""


LOCK, IMAGE, JOURNAL, SOCKET = "lock", "pool", "journal.", "socket"
JOURNAL_MIN = 4 << 20
"""A new image replaces a journal that is longer than this (in bytes), and longer than the current image."""

RECORD_MAX = 4 << 20
"""In bytes. A new image is written instead of a longer record."""

WHEN_FULL = " for the pool of proxies: the pool continues when you free some space"
REPAIR = "restore the folder from a copy, or delete it and add the proxies again"


class PoolFolder:
    """The folder of a pool, owned by this process.

    Raises `StateLocked`, `ForeignState`, `NewerState`, `StorageFull` or `StorageError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self._journal = -1
        self._size = self._size_max = self._image_size = 0
        self._lock = _lock_folder(path)

    @property
    def socket(self) -> Path:
        return self.path / SOCKET

    @property
    def is_complete(self) -> bool:
        """Whether the journal has all changes since the image. If not, a new image must be written."""
        return self._journal >= 0

    @property
    def is_long(self) -> bool:
        """Whether a new image should replace the journal."""
        return self._size > self._size_max

    @property
    def is_unchanged(self) -> bool:
        return self.is_complete and not self._size

    def read(self) -> tuple[bytes, list[bytes]]:
        """Return the image, empty for a new pool, and the records after it."""
        try:
            data = (self.path / IMAGE).read_bytes()
        except FileNotFoundError:
            return b"", []
        except OSError as error:
            raise _storage_error(self.path / IMAGE, error) from error
        self.generation, image = self._parse_image(data)
        self._image_size = len(image)
        return image, list(_read_frames(self.path / f"{JOURNAL}{self.generation}", self.generation))

    def resume(self) -> bool:
        """Continue an empty journal. Return False if it has records or there is no image: then write an image."""
        journal = self.path / f"{JOURNAL}{self.generation}"
        if not self.generation:
            return False
        try:
            opened = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            if os.fstat(opened).st_size:
                os.close(opened)
                return False
        except OSError as error:
            raise _storage_error(journal, error) from error
        self._journal, self._size_max = opened, max(JOURNAL_MIN, self._image_size)
        return True

    def replace_image(self, image: bytes) -> None:
        generation = self.generation + 1
        head = IMAGE_HEAD.pack(MAGIC, VERSION, generation, xxh3_64_intdigest(image, generation))
        journal = self.path / f"{JOURNAL}{generation}"
        # The journal is created first. It is read only with an image of its generation: if the process is killed before
        # the image is replaced, the new journal is never read.
        try:
            opened = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise _storage_error(journal, error) from error
        try:
            # Replacing the image makes the new journal the one that is read.
            replace_file(self.path / IMAGE, head + image, sync=True, mode=0o600)
        except OSError as error:
            os.close(opened)
            raise _storage_error(self.path, error) from error
        self._close_journal()
        self._journal, self._size, self._size_max = opened, 0, max(JOURNAL_MIN, len(image))
        self.generation = generation
        for old in self.path.glob(f"{JOURNAL}*"):
            if old != journal:
                old.unlink(missing_ok=True)

    def postpone_image(self) -> None:
        self._size_max += JOURNAL_MIN

    def append(self, record: bytes) -> None:
        """Write a record to the journal. If it is too long or the write fails, the journal is no longer complete."""
        if len(record) > RECORD_MAX:
            self._close_journal()
            return
        frame = encode_frame(record, self.generation)
        try:
            written = os.write(self._journal, frame)
        except OSError as error:
            self._close_journal()
            raise _storage_error(self.path, error) from error
        if written < len(frame):  # the disk is full
            self._close_journal()
            raise _storage_error(self.path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))
        self._size += len(frame)

    def close(self) -> None:
        self._close_journal()
        unlock_and_close(self._lock)

    def _close_journal(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    def _parse_image(self, data: bytes) -> tuple[int, bytes]:
        path = self.path / IMAGE
        if len(data) < IMAGE_HEAD.size or data[: len(MAGIC)] != MAGIC:
            raise ForeignState(f"{path} is not the file of a pool of proxies: use another folder")
        _, version, generation, checksum = IMAGE_HEAD.unpack_from(data)
        if version > VERSION:
            raise NewerState(f"{path} has version {version}, this Lycosa reads up to {VERSION}: upgrade Lycosa")
        if version < VERSION:
            raise ForeignState(
                f"{path} has version {version}, this Lycosa reads {VERSION}: export the proxies with the version of "
                f"Lycosa that wrote it, and add them to a new folder"
            )
        image = data[IMAGE_HEAD.size :]
        if xxh3_64_intdigest(image, generation) != checksum:
            raise StorageError(f"{path} is damaged: {REPAIR}")
        return generation, image


def pool_exists(path: Path) -> bool:
    """Return whether the folder contains a pool, even an incomplete one; True if it cannot be read."""
    try:
        return (path / IMAGE).is_file() or (path / LOCK).is_file()
    except OSError:
        return True


def owner_of(path: Path) -> str:
    """Return the id of the process that owns the pool, or of its last owner."""
    return lock_owner(path / LOCK)


def damaged(path: Path, why: object) -> StorageError:
    """Return the error for a file that cannot be decoded despite a correct checksum."""
    return StorageError(f"{path} cannot be read ({why}): {REPAIR}")


def _lock_folder(path: Path) -> int:
    try:
        _refuse_foreign(path)
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return lock_file(path / LOCK, 0o600)
    except BlockingIOError as error:
        raise StateLocked(f"{path}: the pool is open in process {owner_of(path)}") from error
    except OSError as error:
        raise _storage_error(path, error) from error


def _refuse_foreign(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise ForeignState(f"{path} is a file: a pool of proxies needs a folder")
    names = {entry.name for entry in path.iterdir()}
    if IMAGE not in names and any(name not in {LOCK, SOCKET, f"{IMAGE}.new"} and JOURNAL not in name for name in names):
        raise ForeignState(f"{path} contains files that are not part of a pool of proxies: use an empty or new folder")


def _read_frames(path: Path, generation: int) -> Iterator[bytes]:
    """Yield the records of a journal. An incomplete last record is ignored; any other invalid frame is an error."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return  # someone deleted it, as each journal is created before its image: it counts as empty
    except OSError as error:
        raise _storage_error(path, error) from error
    at = 0
    while (record := frame_at(data, at, generation)) is not None:
        yield record
        at += HEAD.size + len(record)
    if len(data) - at > RECORD_MAX + HEAD.size or _has_frame_after(data, at, generation):
        raise StorageError(f"{path} is damaged at byte {at:,}: {REPAIR}")


def _has_frame_after(data: bytes, at: int, generation: int) -> bool:
    """Return whether a valid frame follows the invalid one at `at`."""
    return any(frame_at(data, each, generation) is not None for each in range(at + 1, len(data)))


def _storage_error(path: Path, error: OSError) -> StateError:
    return write_error(path, error, "the pool of proxies cannot be stored", WHEN_FULL)
