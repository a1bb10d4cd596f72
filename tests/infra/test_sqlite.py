"""SQLite files that several processes open at the same time, and foreign files."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lycosa.core.errors import StorageError, StorageFull
from lycosa.infra import disk, sqlite
from lycosa.infra.sqlite import DatabaseHeader, open_database, storage_error, transaction
from tests.conftest import ROOT

MAKE = ("CREATE TABLE t (a)", "PRAGMA application_id=7")


def accept(_: DatabaseHeader) -> None:
    """Accept any file."""


def start_writing(path: Path) -> sqlite3.Connection:
    """Return a connection that writes to a file which is not in WAL mode yet."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def replace_pause(monkeypatch: pytest.MonkeyPatch, callback: Callable[[float], object]) -> None:
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(sleep=callback, monotonic=time.monotonic))


def test_a_file_that_another_process_is_creating_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself refuses immediately to switch to WAL while another connection writes."""
    other = start_writing(tmp_path / "file")
    replace_pause(monkeypatch, lambda _: other.execute("COMMIT"))
    database = open_database(tmp_path / "file", accept, MAKE)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()
    other.close()


def test_the_wait_for_a_file_that_another_process_is_creating_is_bounded(tmp_path: Path) -> None:
    other = start_writing(tmp_path / "file")
    started = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        open_database(tmp_path / "file", accept, MAKE, busy_s=0.05)
    assert time.monotonic() - started >= 0.05
    other.close()


def test_errors_other_than_a_lock_are_raised_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: float) -> None:
        raise AssertionError("waited")

    replace_pause(monkeypatch, fail)
    (tmp_path / "file").write_bytes(b"hello " * 1000)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        open_database(tmp_path / "file", accept, MAKE)


OPENER = """
    import sys
    from pathlib import Path
    from lycosa.infra.sqlite import open_database, transaction

    for line in sys.stdin:
        database = open_database(Path(line.strip()), lambda _: None, ("CREATE TABLE t (a)",))
        with transaction(database):
            database.execute("INSERT INTO t VALUES (1)")
        database.close()
        print("done", flush=True)
"""


def test_several_processes_can_create_the_same_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(OPENER)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    openers = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(4)]
    for number in range(25):
        for opener in openers:
            opener.stdin.write(f"{tmp_path / str(number)}\n")
            opener.stdin.flush()
        assert [opener.stdout.readline() for opener in openers] == ["done\n"] * len(openers)
        database = sqlite3.connect(tmp_path / str(number))
        assert database.execute("SELECT count(*) FROM t").fetchone() == (len(openers),)
        database.close()
    for opener in openers:
        opener.communicate()
        assert opener.returncode == 0


def test_a_refused_file_is_not_changed(tmp_path: Path) -> None:
    path, headers = tmp_path / "file", []
    other = sqlite3.connect(path)
    other.executescript("CREATE TABLE theirs (a); PRAGMA application_id=9; PRAGMA user_version=3")
    other.close()
    content = path.read_bytes()

    def refuse(found: DatabaseHeader) -> None:
        headers.append(found)
        raise StorageError("not ours")

    with pytest.raises(StorageError, match="not ours"):
        open_database(path, refuse, MAKE)
    assert headers == [DatabaseHeader(9, 3, {"CREATE TABLE theirs (a)"})]
    assert path.read_bytes() == content


def test_a_failing_transaction_is_rolled_back(tmp_path: Path) -> None:
    database = open_database(tmp_path / "file", accept, MAKE)
    changes = [(1,), (sqlite3.connect,)]  # the second value cannot be stored
    with pytest.raises(sqlite3.Error), transaction(database):
        database.executemany("INSERT INTO t VALUES (?)", changes)
    assert not database.in_transaction
    assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()


def test_errors_of_sqlite_and_of_the_disk_become_storage_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, locked = tmp_path / "file", sqlite3.OperationalError("database is locked")
    converted = storage_error(path, locked, "here", "it cannot be used ({}); do this")
    assert (type(converted), str(converted)) == (
        StorageError,
        f"{path}: it cannot be used (database is locked); do this",
    )
    full = storage_error(path, OSError(28, "No space left on device"), "here; free some", "")
    assert (type(full), str(full)) == (StorageFull, f"{path}: no space left here; free some")
    io_error = sqlite3.OperationalError("disk I/O error")
    io_error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert type(storage_error(path, io_error, "here", "{}")) is StorageError
    monkeypatch.setattr(disk, "FREE_MIN_BYTES", 1 << 62)
    assert type(storage_error(path, io_error, "here", "{}")) is StorageFull
