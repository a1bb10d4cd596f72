"""The state folder of a crawl: one owner, one format, one description.

DIR/lock            locked while a process owns the state; contains its process id
DIR/crawl.json      format, version, name of the crawl, its seeds; replaced atomically
DIR/frontier/       the embedded frontier
DIR/socket          where a running owner serves `lycosa frontier`
DIR/records.sqlite  cookies and the state of spiders
DIR/items.jsonl     see `StateDir.items`
DIR/json-N.jsonl    the items of an output that is a JSON array
DIR/worker          the membership, if this is the state of a worker of a shared crawl
"""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from lycosa.core.errors import DamagedState, ForeignState, LycosaError, NewerState, StateError, StateLocked
from lycosa.frontier.core.description import FORMAT, VERSION, Description
from lycosa.infra.disk import write_error
from lycosa.infra.durable_files import DAMAGE_ADVICE, make_folder, replace_file
from lycosa.infra.file_locks import lock_file, lock_owner, unlock_and_close

DESCRIPTION = "crawl.json"
LOCK = "lock"
FRONTIER = "frontier"
SOCKET = "socket"
RECORDS = "records.sqlite"
WORKER = "worker"

JSON_SPOOLS = "json-*.jsonl"

KNOWN_FILES = {WORKER, WORKER + ".new", DESCRIPTION, DESCRIPTION + ".new", LOCK, FRONTIER, SOCKET, "items.jsonl"}
KNOWN_FILES |= {RECORDS, RECORDS + "-wal", RECORDS + "-shm", RECORDS + "-journal"}
DESCRIPTION_MAX = 64 << 20


class StateDir:
    """A locked state folder. Raises `StateLocked`, `ForeignState`, `NewerState`, `StorageFull` or `StorageError`."""

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
        return self.path / FRONTIER

    @property
    def socket(self) -> Path:
        return self.path / SOCKET

    @property
    def items(self) -> Path:
        """The item file written for an index if no output of the crawl is an uncompressed file of JSON lines."""
        return self.path / "items.jsonl"

    @property
    def records(self) -> Path:
        return self.path / RECORDS

    def check_complete(self) -> None:
        """Raise `DamagedState` if the crawl has a description but no database; the crawl must not silently start over.

        Raises `ForeignState` if the state belongs to a worker of a shared crawl: such a state never has a database.
        """
        data = self.frontier / "data.mdb"
        if (self.path / WORKER).exists() and not data.exists():
            problem = f"{self.path} is the state of a worker of a shared crawl"
            raise ForeignState(f"{problem}: give the --frontier of that crawl, another --state, or -O to start afresh")
        described = self.description.name or self.description.imported
        if described and not (data.exists() and data.stat().st_size):
            raise DamagedState(f"{data} is missing or empty", advice=DAMAGE_ADVICE)

    def describe(self, description: Description) -> None:
        """Replace the description atomically. It survives a power loss even without `--sync`."""
        self.description = description
        data = msgspec.json.format(msgspec.json.encode(description), indent=1)
        try:
            replace_file(self.path / DESCRIPTION, data, sync=True)
        except OSError as error:
            raise _storage_error(self.path, error) from error

    def clear(self) -> None:
        """Delete the crawl, but keep the lock."""
        shutil.rmtree(self.frontier, ignore_errors=True)
        for spool in (self.items, *self.path.glob(JSON_SPOOLS)):
            spool.unlink(missing_ok=True)
        (self.path / WORKER).unlink(missing_ok=True)
        for name in (RECORDS, RECORDS + "-wal", RECORDS + "-shm", RECORDS + "-journal"):
            (self.path / name).unlink(missing_ok=True)
        self.describe(Description())

    def close(self) -> None:
        unlock_and_close(self._lock)


def _lock(path: Path) -> int:
    """Return the descriptor of the lock file, which holds the lock until it is closed."""
    try:
        _refuse_foreign(path)
        make_folder(path)
        return lock_file(path / LOCK, 0o644)
    except BlockingIOError as error:
        message = f"{path}: the state is open in process {owner_of(path)}; stop it or give another --state"
        raise StateLocked(message) from error
    except OSError as error:
        raise _storage_error(path, error) from error


def owner_of(path: Path) -> str:
    """The id of the process that owns the state, or last owned it; "unknown" if unreadable."""
    return lock_owner(path / LOCK)


def _refuse_foreign(path: Path) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise ForeignState(f"{path} is a file, not a state folder; give another --state")
    names = {entry.name for entry in path.iterdir() if not entry.match(JSON_SPOOLS)}
    if names - KNOWN_FILES and DESCRIPTION not in names:
        raise ForeignState(f"{path} contains files but no Lycosa state; use an empty or new folder for --state")


def read_description(path: Path) -> Description:
    """Return the description in a state folder, locked or not. Raises `ForeignState`, `NewerState`, `StorageError`."""
    file = path / DESCRIPTION
    if not file.exists():
        return Description()
    try:
        with file.open("rb") as stream:
            head = msgspec.json.decode(stream.read(DESCRIPTION_MAX), type=dict)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ForeignState(f"{file} is not the description of a Lycosa state; give another --state") from error
    except OSError as error:
        raise write_error(file, error, "the description cannot be read") from error
    if head.get("format") != FORMAT or not isinstance(head.get("version"), int):
        raise ForeignState(f"{file} is not the description of a Lycosa state; give another --state")
    if head["version"] < VERSION:
        message = f"{path}: the state has version {head['version']}, which is too old"
        raise ForeignState(message + "; give another --state, or delete this one")
    if head["version"] > VERSION:
        message = f"{path}: the state has version {head['version']}, this Lycosa reads up to {VERSION}; upgrade Lycosa"
        raise NewerState(message)
    try:
        return msgspec.convert(head, Description)
    except msgspec.ValidationError as error:
        raise ForeignState(f"{file} is damaged ({error}); give another --state") from error


def _storage_error(path: Path, error: OSError) -> StateError:
    return write_error(path, error, "cannot write the state")
