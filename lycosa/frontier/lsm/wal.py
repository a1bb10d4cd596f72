"""The write-ahead log: an append-only file of the changes that are committed but not yet in the database.

Each commit appends one checksummed frame. A kill or a full disk may leave a torn frame; the reader ignores it at the
end of the last file. Each file holds one generation of frames. Before the changes of a generation are copied into the
database, the file of the next generation begins.

    journal.7    frames of [length, checksum, payload]; the checksum is xxh3 seeded with the generation
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from lycosa.core.errors import DamagedState, StorageError
from lycosa.infra.durable_files import DAMAGE_ADVICE, storage_error, storage_errors, sync_file, sync_folder
from lycosa.infra.frames import HEAD, encode_frame, frame_at

FRAME_MAX = 1 << 30
"""Maximum bytes in the payload of one frame; a larger commit is refused."""

PREFIX = "journal."


class WriteAheadLog:
    """The log of one generation, open for appending. Raises `StorageFull` and `StorageError`."""

    def __init__(self, folder: Path, generation: int, *, sync: bool) -> None:
        self.path = folder / f"{PREFIX}{generation}"
        self.generation = generation
        self._sync = sync
        self.size_bytes = 0
        with storage_errors(folder):
            self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            if sync:
                sync_folder(folder)

    def append(self, payload: bytes) -> None:
        """The frame survives a kill; after `sync`, if the log was opened with it, also a power loss."""
        if len(payload) > FRAME_MAX:
            raise StorageError(f"{self.path}: a commit of {len(payload):,} bytes is too large; commit more often")
        frame = encode_frame(payload, self.generation)
        try:
            _write(self._file, frame, self.size_bytes)
        except OSError as error:
            with suppress(OSError):  # remove the torn frame, so that the next append follows the last complete one
                os.ftruncate(self._file, self.size_bytes)
            raise storage_error(self.path, error) from error
        self.size_bytes += len(frame)

    def sync(self) -> None:
        if self._sync:
            with storage_errors(self.path):
                os.fdatasync(self._file)

    def close(self) -> None:
        os.close(self._file)


def generations(folder: Path) -> list[int]:
    """Return the generations of all logs in the folder, sorted."""
    names = (path.name.removeprefix(PREFIX) for path in folder.glob(PREFIX + "*"))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def read_frames(folder: Path, generation: int, *, last: bool) -> Iterator[bytes]:
    """Yield the frames of a log up to the first torn one. Raises `DamagedState` for it, except in the `last` log."""
    path = folder / f"{PREFIX}{generation}"
    with storage_errors(path):
        data = path.read_bytes()
    at = 0
    while (payload := frame_at(data, at, generation)) is not None:
        yield payload
        at += HEAD.size + len(payload)
    if at < len(data) and not last:
        raise DamagedState(f"{path} is damaged at byte {at:,}", advice=DAMAGE_ADVICE)


def sync_logs(folder: Path, logs: list[int]) -> None:
    """Force these logs and their directory entries to disk."""
    for generation in logs:
        sync_file(folder / f"{PREFIX}{generation}")
    sync_folder(folder)


def delete_log(folder: Path, generation: int) -> None:
    """Delete a log, whose content must be in the database."""
    (folder / f"{PREFIX}{generation}").unlink(missing_ok=True)


def _write(file: int, data: bytes, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, at)
        view = view[written:]
        at += written
