"""How SQLite files are opened that others open at the same time, and what is done to those that are not ours."""

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
from lycosa.infra.sqlite import DatabaseHeader, opened, storage_error, transaction
from tests.conftest import ROOT

MAKE = ("CREATE TABLE t (a)", "PRAGMA application_id=7")


def accept(_: DatabaseHeader) -> None:
    """Take any file."""


def locked(path: Path) -> sqlite3.Connection:
    """Return a connection that writes to a file which is not in WAL mode yet."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    return other


def instead_of_a_pause(monkeypatch: pytest.MonkeyPatch, act: Callable[[float], object]) -> None:
    monkeypatch.setattr(sqlite, "time", SimpleNamespace(sleep=act, monotonic=time.monotonic))


def test_one_that_is_about_to_be_made_by_another_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite itself refuses at once to switch to WAL beside a writer."""
    other = locked(tmp_path / "file")
    instead_of_a_pause(monkeypatch, lambda _: other.execute("COMMIT"))
    database = opened(tmp_path / "file", accept, MAKE)
    assert database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()
    other.close()


def test_it_is_not_waited_for_longer_than_said(tmp_path: Path) -> None:
    other = locked(tmp_path / "file")
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="database is locked"):
        opened(tmp_path / "file", accept, MAKE, busy_s=0.05)
    assert time.monotonic() - began >= 0.05
    other.close()


def test_other_errors_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: float) -> None:
        raise AssertionError("waited")

    instead_of_a_pause(monkeypatch, fail)
    (tmp_path / "file").write_bytes(b"hello " * 1000)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        opened(tmp_path / "file", accept, MAKE)


OPENER = """
    import sys
    from pathlib import Path
    from lycosa.infra.sqlite import opened, transaction

    for line in sys.stdin:
        database = opened(Path(line.strip()), lambda _: None, ("CREATE TABLE t (a)",))
        with transaction(database):
            database.execute("INSERT INTO t VALUES (1)")
        database.close()
        print("done", flush=True)
"""


def test_many_processes_make_the_same_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(OPENER)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    openers = [subprocess.Popen(command, cwd=ROOT, **pipes) for _ in range(4)]
    for turn in range(25):
        for opener in openers:
            opener.stdin.write(f"{tmp_path / str(turn)}\n")
            opener.stdin.flush()
        assert [opener.stdout.readline() for opener in openers] == ["done\n"] * len(openers)
        database = sqlite3.connect(tmp_path / str(turn))
        assert database.execute("SELECT count(*) FROM t").fetchone() == (len(openers),)
        database.close()
    for opener in openers:
        opener.communicate()
        assert opener.returncode == 0


def test_a_file_that_is_refused_stays_as_it_is(tmp_path: Path) -> None:
    path, seen = tmp_path / "file", []
    other = sqlite3.connect(path)
    other.executescript("CREATE TABLE theirs (a); PRAGMA application_id=9; PRAGMA user_version=3")
    other.close()
    before = path.read_bytes()

    def refuse(found: DatabaseHeader) -> None:
        seen.append(found)
        raise StorageError("not ours")

    with pytest.raises(StorageError, match="not ours"):
        opened(path, refuse, MAKE)
    assert seen == [DatabaseHeader(9, 3, {"CREATE TABLE theirs (a)"})]
    assert path.read_bytes() == before


def test_a_transaction_that_raises_leaves_nothing(tmp_path: Path) -> None:
    database = opened(tmp_path / "file", accept, MAKE)
    changes = [(1,), (sqlite3.connect,)]  # the second value is none that can be stored
    with pytest.raises(sqlite3.Error), transaction(database):
        database.executemany("INSERT INTO t VALUES (?)", changes)
    assert not database.in_transaction
    assert database.execute("SELECT count(*) FROM t").fetchone() == (0,)
    database.close()


def test_errors_say_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, locked_ = tmp_path / "file", sqlite3.OperationalError("database is locked")
    ours = storage_error(path, locked_, "here", "it cannot be used ({}); do this")
    assert (type(ours), str(ours)) == (StorageError, f"{path}: it cannot be used (database is locked); do this")
    full = storage_error(path, OSError(28, "No space left on device"), "here; free some", "")
    assert (type(full), str(full)) == (StorageFull, f"{path}: no space left here; free some")
    vague = sqlite3.OperationalError("disk I/O error")
    vague.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE
    assert type(storage_error(path, vague, "here", "{}")) is StorageError
    monkeypatch.setattr(disk, "FREE_MIN_BYTES", 1 << 62)
    assert type(storage_error(path, vague, "here", "{}")) is StorageFull
