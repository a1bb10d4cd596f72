"""The folder in which a crawl keeps its state: one owner, one format, one description.

DIR/lock        locked while a process owns the state; holds its process id
DIR/crawl.json  format, version, name of the crawl, its seeds; replaced as a whole
DIR/frontier/   the embedded frontier
DIR/socket      where a live owner answers `lycosa frontier`
DIR/records.sqlite  what the crawl remembers beside its frontier: cookies, what a spider keeps
"""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path

import msgspec

from lycosa.core.errors import ForeignState, LycosaError, NewerState, StateError, StateLocked, StorageError
from lycosa.frontier.core.description import FORMAT, VERSION, Description
from lycosa.infra.disk import not_written
from lycosa.infra.durable_files import make_folder, replace_file
from lycosa.infra.file_locks import unlock

DESCRIPTION = "crawl.json"
LOCK = "lock"
FRONTIER = "frontier"
SOCKET = "socket"
RECORDS = "records.sqlite"
WORKER = "worker"
"""The file of a state that holds the name under which it takes part in a shared crawl."""

OURS = {WORKER, WORKER + ".new", DESCRIPTION, DESCRIPTION + ".new", LOCK, FRONTIER, SOCKET, "items.jsonl"}
OURS |= {RECORDS, RECORDS + "-wal", RECORDS + "-shm", RECORDS + "-journal"}
DESCRIPTION_MAX = 64 << 20


class StateDir:
    """An owned state folder. Raises `StateLocked`, `ForeignState`, `NewerState`, `StorageFull` or `StorageError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = _lock(path)
        try:
            self.description = read_description(path)
        except LycosaError:
            self.close()
            raise

    @property
    def frontier(self) -> Path:
        """Where the embedded frontier lives."""
        return self.path / FRONTIER

    @property
    def socket(self) -> Path:
        """Where we answer `lycosa frontier` while we own the state."""
        return self.path / SOCKET

    @property
    def items(self) -> Path:
        """Where items go that an index needs and the user did not ask for in a file."""
        return self.path / "items.jsonl"

    @property
    def records(self) -> Path:
        """Where the crawl keeps what it remembers beside its frontier."""
        return self.path / RECORDS

    def refuse_half(self) -> None:
        """Raise `StorageError` when the state is described but its database is gone: it would begin anew, unasked.

        Raises `ForeignState` when it never had one, since it is that of a worker of a shared crawl.
        """
        data = self.frontier / "data.mdb"
        if (self.path / WORKER).exists() and not data.exists():
            whose = f"{self.path} is the state of a worker of a shared crawl"
            raise ForeignState(f"{whose}: give --frontier as to it, another --state, or -O to start afresh")
        described = self.description.name or self.description.imported
        if described and not (data.exists() and data.stat().st_size):
            raise StorageError(f"{data} is gone or empty: put it back, or let the crawl start afresh with -O")

    def describe(self, description: Description) -> None:
        """Replace the description, atomically; it outlasts a power loss, with or without `--sync`."""
        self.description = description
        data = msgspec.json.format(msgspec.json.encode(description), indent=1)
        try:
            replace_file(self.path / DESCRIPTION, data, sync=True)
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def clear(self) -> None:
        """Forget the crawl, keeping the lock."""
        shutil.rmtree(self.frontier, ignore_errors=True)
        self.items.unlink(missing_ok=True)
        (self.path / WORKER).unlink(missing_ok=True)
        for name in (RECORDS, RECORDS + "-wal", RECORDS + "-shm", RECORDS + "-journal"):
            (self.path / name).unlink(missing_ok=True)
        self.describe(Description())

    def close(self) -> None:
        """Give the folder free."""
        unlock(self._lock)
        os.close(self._lock)


def _lock(path: Path) -> int:
    try:
        _refuse_foreign(path)
        make_folder(path)
        handle = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise _storage_error(path, error) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(handle, 0)
        os.pwrite(handle, str(os.getpid()).encode(), 0)
    except BlockingIOError as error:
        os.close(handle)
        message = f"{path}: the state is open in process {owner_of(path)}; stop it or give another --state"
        raise StateLocked(message) from error
    except OSError as error:
        os.close(handle)
        raise _storage_error(path, error) from error
    return handle


def owner_of(path: Path) -> str:
    """Return the process that owns the state in this folder, or owned it last."""
    try:
        with (path / LOCK).open("rb") as file:
            return file.read(32).decode(errors="replace").strip() or "unknown"
    except OSError:
        return "unknown"


def _refuse_foreign(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise ForeignState(f"{path} is a file, not a state folder; give another --state")
    names = {entry.name for entry in path.iterdir()}
    if names - OURS and DESCRIPTION not in names:
        raise ForeignState(f"{path} holds something else than a Lycosa state; give an empty or new folder to --state")


def read_description(path: Path) -> Description:
    """Return what the state in this folder says of its crawl, whoever owns it. Raises `ForeignState`, `NewerState`."""
    file = path / DESCRIPTION
    if not file.exists():
        return Description()
    try:
        with file.open("rb") as stream:
            head = msgspec.json.decode(stream.read(DESCRIPTION_MAX), type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ForeignState(f"{file} is not the description of a Lycosa state; give another --state") from error
    except OSError as error:
        raise _storage_error(path, error) from error
    if head.get("format") != FORMAT or not isinstance(head.get("version"), int):
        raise ForeignState(f"{file} is not the description of a Lycosa state; give another --state")
    if head["version"] < VERSION:
        message = f"{path}: the state has version {head['version']}, which is too old to be read"
        raise ForeignState(message + "; give another --state, or delete this one")
    if head["version"] > VERSION:
        message = f"{path}: the state has version {head['version']}, this Lycosa reads up to {VERSION}; upgrade Lycosa"
        raise NewerState(message)
    try:
        return msgspec.convert(head, Description)
    except msgspec.ValidationError as error:
        raise ForeignState(f"{file} is damaged ({error}); give another --state") from error


def _storage_error(path: Path, error: OSError) -> StateError:
    return not_written(path, error, "cannot write the state")
