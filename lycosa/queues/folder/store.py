"""The folder of a queue that many processes share: one SQLite database, one lock, a named pipe per queue object.

DIR/queue.db   tables: state (one row, see `QueueState`), items (available items), leased (each with its member)
DIR/lock       held during one transaction; the operating system releases it if the process dies
DIR/bells/     see `wakeup_pipes`

Every operation runs in `change`: lock, begin, read the state, run the caller's block, wake the members that can
continue, write the state, commit, unlock. A process killed before the commit has changed nothing. The database is
SQLite, not LMDB: the folder may be damaged or hostile, and a wrong pointer in an LMDB file crashes the process.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated
from weakref import WeakSet

import msgspec

from lycosa.core.errors import ForeignState, LycosaError, NewerState, StateError, StorageError, UsageError
from lycosa.infra.sqlite import DatabaseHeader, error_code, open_database, storage_error
from lycosa.queues.blocking import COUNT_MAX
from lycosa.queues.folder.wakeup_pipes import WakeupPipes
from lycosa.queues.order import Order

FORMAT = 0x4C795131
"""SQLite's application id: "LyQ1"."""
VERSION = 1
DATABASE, LOCK, PIPES = "queue.db", "lock", "bells"
OURS = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal", LOCK, PIPES}

PAGE_BYTES = 4096
QUEUE_MAX_BYTES = 1 << 40
MEMBERS_MAX = 256
"""Maximum number of members (open queue objects) of one queue: each has an open file for every other."""
CHECKPOINT_PAGES = 4000
"""SQLite checkpoints its write-ahead log when the log has this many pages."""
BUSY_S = 30.0
"""How long to wait for another program that locks the database without the lock file."""

ITEMS, ROOM, DONE = 1, 2, 4

TABLES = (
    "CREATE TABLE state (one INTEGER PRIMARY KEY, value BLOB NOT NULL)",
    "CREATE TABLE items (id INTEGER PRIMARY KEY, rank, attempts INTEGER NOT NULL, value BLOB NOT NULL)",
    "CREATE TABLE leased (id INTEGER PRIMARY KEY, member INTEGER, rank, attempts INTEGER, value BLOB NOT NULL)",
)
RANKS = "CREATE INDEX ranks ON items (rank, id)"
SETTINGS = (
    f"page_size={PAGE_BYTES}",
    f"wal_autocheckpoint={CHECKPOINT_PAGES}",
    f"max_page_count={QUEUE_MAX_BYTES // PAGE_BYTES}",
)
DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
FULL = "for the queue; nothing is lost: free some space and continue"
"""The end of the message of `StorageFull`, which begins with "no space left" (`infra.sqlite.storage_error`)."""

Count = Annotated[int, msgspec.Meta(ge=0, le=COUNT_MAX)]


class FolderMember(msgspec.Struct, array_like=True):
    """An open queue object. `got` counts items that it took and has not reported done.

    `waits` is a bit set of ITEMS, ROOM and DONE. `room` is the number of free places for which a thread waits; if
    several threads wait, the smallest of their numbers.
    """

    got: Count = 0
    waits: Count = 0
    room: Count = 0


class QueueState(msgspec.Struct, array_like=True):
    """The state that all processes share. `size` items are available; `generation` counts changes of `members`."""

    order: Order
    codec: str
    maxsize: int = 0
    size: Count = 0
    unfinished: Count = 0
    next_id: Count = 1
    next_member: Count = 1
    generation: Count = 0
    shut: bool = False
    members: dict[int, FolderMember] = {}

    def room(self) -> int:
        return self.maxsize - self.size if self.maxsize > 0 else COUNT_MAX

    def register(self, number: int, event: int, room: int = 0) -> None:
        """Keep the smallest `room` if several threads wait for room."""
        member = self.members[number]
        member.waits |= event
        if room:
            member.room = min(room, member.room or room)

    def report_done(self, number: int, count: int) -> None:
        """Subtract `count` from the number of items that this member took and has not reported done.

        If `count` is larger than this number, subtract the rest from the numbers of other members: they took items and
        handed them to this member.
        """
        for member in (self.members[number], *self.members.values()):
            done = min(count, member.got)
            member.got -= done
            count -= done

    def members_to_wake(self) -> list[int]:
        return [number for number, member in self.members.items() if member.waits and self._has_happened(member)]

    def _has_happened(self, member: FolderMember) -> bool:
        return bool(
            self.shut
            or (member.waits & ITEMS and self.size)
            or (member.waits & ROOM and self.room() >= member.room)
            or (member.waits & DONE and not self.unfinished)
        )


encode_state = msgspec.msgpack.Encoder().encode
decode_state = msgspec.msgpack.Decoder(QueueState).decode


class QueueFolder:
    """One member of a queue: a queue object of one process. A forked child becomes a new member.

    Raises `ForeignState`, `NewerState`, `StorageFull` or `StorageError`; `ValueError` once it is closed.
    """

    def __init__(self, path: Path, order: Order, codec: str, *, sync: bool) -> None:
        self.path = path
        self.member = 0
        self._expected = QueueState(order, codec)
        self._sync = sync
        self._mutex = threading.RLock()
        self._busy = False
        self._closed = False
        self._database: sqlite3.Connection | None = None
        self._pipes: WakeupPipes | None = None
        self._lock = -1
        self._generation = 0
        _folders.add(self)

    @contextmanager
    def change(self) -> Iterator[tuple[sqlite3.Connection, QueueState]]:
        """Let the block change state and tables, excluding all other processes. If it raises, nothing is changed."""
        with self._mutex:
            if self._closed:
                raise ValueError(f"the queue {self.path} is closed")
            if self._busy:
                raise RuntimeError("a queue cannot be used inside one of its own calls (signal handler, unpickling)")
            self._busy = True
            try:
                self._take_lock()
                database = self._database or self._open()
                pipes = self._pipes or self._join(database)
                state, before = self._begin(database)
                self._update_members(database, state, pipes)
                yield database, state
                self._wake(pipes, state.members_to_wake(), state)
                _commit(database, state, before)
            except (sqlite3.Error, OSError, OverflowError, UnicodeDecodeError) as error:
                raise _storage_error(self.path, error) from error
            finally:
                # No calls of Python functions on the normal path: Ctrl-C could interrupt one and leave the lock taken.
                self._busy = False
                if self._database is not None and self._database.in_transaction:
                    self._roll_back()
                if self._lock >= 0:
                    fcntl.flock(self._lock, fcntl.LOCK_UN)

    @property
    def wakeup_count(self) -> int:
        return self._pipes.count if self._pipes else 0

    def sleep(self, wakeup_count: int, timeout_s: float) -> None:
        if self._pipes:
            self._pipes.sleep(wakeup_count, timeout_s)

    def close(self) -> None:
        """Leave the queue. Leased items are put back."""
        with self._mutex:
            if self._closed:
                return
            # If this fails (a full disk), the other members put the items back, as for a dead member.
            with suppress(LycosaError), self.change() as (database, state):
                _leave(database, state, self.member)
            self.abandon()

    def abandon(self) -> None:
        """Release the folder without leaving the queue, like a process that dies."""
        self._closed = True
        self.close_database()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1
        if self._pipes:
            self._pipes.close()

    def __del__(self) -> None:
        if not self._closed:
            warnings.warn(f"queue {self.path} was not closed", ResourceWarning, source=self, stacklevel=2)
            self.abandon()

    def close_database(self) -> None:
        """Needed before a fork: SQLite's locks do not survive it."""
        if self._database:
            self._database.close()
            self._database = None

    def before_fork(self) -> None:
        """Wait until no thread is in a transaction, and let none begin another."""
        self._mutex.acquire()
        self.close_database()

    def after_fork(self, *, child: bool) -> None:
        """The child continues as a new member, without the lock and the pipes of the parent."""
        if not child:
            self._mutex.release()
            return
        self._mutex = threading.RLock()
        if self._lock >= 0:
            os.close(self._lock)
        if self._pipes:
            self._pipes.abandon()
        self._lock, self._pipes, self.member = -1, None, 0

    def _take_lock(self) -> None:
        if self._lock < 0:
            _refuse_foreign(self.path)
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _roll_back(self) -> None:
        assert self._database is not None
        try:
            self._database.execute("ROLLBACK")
        except sqlite3.Error:
            self.close_database()

    @staticmethod
    def _wake(pipes: WakeupPipes, numbers: list[int], state: QueueState) -> None:
        # Wake before the commit: woken members must wait for the lock anyway. If this process dies before the commit,
        # the stored state still has their `waits`, so a later change can wake them again.
        pipes.wake(numbers)
        for number in numbers:
            state.members[number].waits = state.members[number].room = 0

    def _open(self) -> sqlite3.Connection:
        file = self.path / DATABASE
        if file.exists() and not file.is_file():
            raise StorageError(f"{file} is not the database of a queue")
        make = _statements(self._expected)
        self._database = open_database(file, self._refuse, make, sync=self._sync, busy_s=BUSY_S, settings=SETTINGS)
        return self._database

    def _refuse(self, found: DatabaseHeader) -> None:
        if found.application_id == FORMAT and found.version > VERSION:
            message = f"{self.path}: the queue has version {found.version}, this Lycosa reads up to {VERSION}"
            raise NewerState(f"{message}; upgrade Lycosa")
        if found.application_id != FORMAT and (found.application_id or found.tables):
            raise ForeignState(f"{self.path} contains something other than a queue; give another folder")
        if found.tables and found.tables not in ({*TABLES}, {*TABLES, RANKS}):
            raise StorageError(f"{self.path}: the tables of the queue are damaged")

    def _join(self, database: sqlite3.Connection) -> WakeupPipes:
        state, before = self._begin(database)
        _refuse_other(self.path, state, self._expected)
        number = state.next_member
        pipes = WakeupPipes(self.path / PIPES, number)
        try:
            pipes.watch(state.members)
            for dead in pipes.dead():
                _leave(database, state, dead)
                pipes.remove(dead)
            _refuse_too_many(self.path, state)
            state.shut = state.shut and bool(state.members)
            # Wake the sleeping members: they must watch the new member, too.
            self._wake(pipes, [each for each, member in state.members.items() if member.waits], state)
            state.members[number] = FolderMember()
            state.next_member += 1
            state.generation += 1
            _commit(database, state, before)
        except BaseException:
            pipes.close()
            raise
        self._pipes, self.member, self._generation = pipes, number, -1
        return pipes

    def _update_members(self, database: sqlite3.Connection, state: QueueState, pipes: WakeupPipes) -> None:
        """Watch the current members, and put back the leased items of dead members."""
        if self.member not in state.members:
            lost = f"its pipe in {PIPES}/ is gone, so other processes consider this one dead"
            raise StorageError(f"{self.path}: {lost}; open the queue again")
        if state.generation != self._generation:
            pipes.watch(state.members)
            self._generation = state.generation
        for number in pipes.dead() & state.members.keys():
            _leave(database, state, number)
            pipes.remove(number)

    def _begin(self, database: sqlite3.Connection) -> tuple[QueueState, bytes]:
        database.execute("BEGIN")
        row = database.execute("SELECT value FROM state").fetchone()
        try:
            return decode_state(row[0]), row[0]
        except (msgspec.MsgspecError, TypeError) as error:
            raise StorageError(f"{self.path}: the state of the queue is damaged ({error})") from error


def _commit(database: sqlite3.Connection, state: QueueState, before: bytes) -> None:
    after = encode_state(state)
    if after != before:
        database.execute("UPDATE state SET value = ?", (after,))
    database.execute("COMMIT")


def _leave(database: sqlite3.Connection, state: QueueState, number: int) -> None:
    """Remove a member, and put back its leased items."""
    moved = database.execute(
        "INSERT INTO items SELECT id, rank, attempts + 1, value FROM leased WHERE member = ?", (number,)
    ).rowcount
    if moved:
        database.execute("DELETE FROM leased WHERE member = ?", (number,))
        state.size += moved
    # Nobody will call `task_done` for the items that this member took, so `join` must not wait for them.
    state.unfinished = max(0, state.unfinished - state.members.pop(number).got)
    state.generation += 1


def _statements(state: QueueState) -> list[str]:
    return [
        *TABLES,
        *([RANKS] if state.order is Order.PRIORITY else []),
        f"INSERT INTO state VALUES (1, x'{encode_state(state).hex()}')",  # noqa: S608  our own bytes
        f"PRAGMA application_id={FORMAT}",
        f"PRAGMA user_version={VERSION}",
    ]


def _refuse_foreign(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise ForeignState(f"{path} is a file, but a queue is a folder; give another path")
    names = {entry.name for entry in path.iterdir()} if path.exists() else set()
    if names - OURS and DATABASE not in names:
        raise ForeignState(f"{path} contains something other than a queue; give an empty or new folder")


def _refuse_other(path: Path, state: QueueState, expected: QueueState) -> None:
    if state.order is not expected.order:
        raise UsageError(f"{path} was made as a {state.order.value}; open it as one")
    if state.codec != expected.codec:
        raise UsageError(f"{path} was made with serializer {state.codec}, not {expected.codec}; use the same")


def _refuse_too_many(path: Path, state: QueueState) -> None:
    if len(state.members) >= MEMBERS_MAX:
        raise StateError(f"{path}: the queue is already open {MEMBERS_MAX} times; close some of these queue objects")


def _storage_error(path: Path, error: Exception) -> StateError:
    damaged = error_code(error) in DAMAGED
    what = "the database of the queue is damaged ({})" if damaged else "the queue cannot be used: {}"
    return storage_error(path, error, FULL, what)


_folders: WeakSet[QueueFolder] = WeakSet()
_forking: list[QueueFolder] = []
_fork_lock = threading.Lock()


def _before_fork() -> None:
    _fork_lock.acquire()
    for folder in list(_folders):
        folder.before_fork()
        _forking.append(folder)


def _after_fork(*, child: bool) -> None:
    for folder in _forking:
        folder.after_fork(child=child)
    _forking.clear()
    _fork_lock.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=lambda: _after_fork(child=False),
    after_in_child=lambda: _after_fork(child=True),
)
