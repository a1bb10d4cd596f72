"""The database of the site, one SQLite file: administrators, their sessions, API keys, and takedown requests.

    users       name, Argon2 hash of the password
    sessions    hash of the token in the cookie, name, token of its forms, expiry time
    api_keys    hash of the key, name, time of creation
    takedowns   time, infohashes, reason, contact (until the decision), decision, time of the decision

Nothing else about visitors is stored. Deleted data is overwritten. Methods block.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.core.errors import ForeignState, StateError, UsageError
from lycosa.infra.sqlite import DatabaseHeader, open_database, storage_error, transaction

FORMAT = int.from_bytes(b"LySi")
VERSION = 1
SESSION_S = 12 * 3600
PRIVATE = 0o600
"""Only the system user that runs the site can read the file."""
WAITING_MAX = 1000
"""Maximum number of undecided takedown requests. Further requests are refused."""
WAITING_SHOWN, DECIDED_SHOWN = 20, 50
TABLES = (
    "CREATE TABLE users (name TEXT PRIMARY KEY, password TEXT NOT NULL) WITHOUT ROWID",
    """CREATE TABLE sessions (token BLOB PRIMARY KEY, name TEXT NOT NULL, form_token TEXT NOT NULL,
        ends REAL NOT NULL) WITHOUT ROWID""",
    "CREATE TABLE api_keys (key BLOB PRIMARY KEY, name TEXT NOT NULL UNIQUE, made INTEGER NOT NULL) WITHOUT ROWID",
    """CREATE TABLE takedowns (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, infohashes TEXT NOT NULL,
        reason TEXT NOT NULL, contact TEXT NOT NULL, decision TEXT NOT NULL, decided INTEGER)""",
    f"PRAGMA application_id={FORMAT}",
    f"PRAGMA user_version={VERSION}",
)


class AdminSession(NamedTuple):
    """A session of an administrator. Its forms carry `form_token`."""

    name: str
    form_token: str


class Takedown(NamedTuple):
    """A request to remove torrents. `decision` is "" until it is decided, then "accepted" or "refused"."""

    id: int
    at: int
    infohashes: tuple[str, ...]
    reason: str
    contact: str
    decision: str
    decided: int | None


class SiteStore:
    """Reads and writes the database. Raises `StateError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        with suppress(OSError):  # if this fails, SQLite fails too, and says why
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        for suffix in ("", "-wal", "-shm"):  # files of an older Lycosa, or copies, may be readable by others
            with suppress(OSError):
                path.with_name(path.name + suffix).chmod(PRIVATE)
        try:
            self._database = open_database(path, self._refuse, TABLES, sync=True, settings=["secure_delete=ON"])
        except sqlite3.Error as error:
            raise self._error(error) from error

    def set_password(self, name: str, hashed: str) -> None:
        """Add an administrator, or change a password. Ends the administrator's sessions."""
        self._end_sessions(name, "REPLACE INTO users VALUES (?, ?) RETURNING 1", [name, hashed])

    def password(self, name: str) -> str | None:
        """Return the hash of an administrator's password; None if the name is unknown."""
        rows = self._run("SELECT password FROM users WHERE name = ?", [name])
        return rows[0][0] if rows else None

    def change_password(self, name: str, hashed: str) -> bool:
        """Change a password, and end the administrator's sessions. Return False if there is no such administrator."""
        return self._end_sessions(name, "UPDATE users SET password = ? WHERE name = ? RETURNING 1", [hashed, name])

    def remove_user(self, name: str) -> bool:
        """Remove an administrator, and end the administrator's sessions. Return False if there is no such
        administrator, or no other one."""
        query = "DELETE FROM users WHERE name = ? AND (SELECT count(*) FROM users) > 1 RETURNING 1"
        return self._end_sessions(name, query, [name])

    def users(self) -> list[str]:
        return [name for (name,) in self._run("SELECT name FROM users ORDER BY name")]

    def open_session(self, name: str, hashed: str, now: float) -> str | None:
        """Begin a session. Return the token for the cookie, which is not stored; None if the password has changed."""
        token = secrets.token_urlsafe(32)
        self._run("DELETE FROM sessions WHERE ends <= ?", [now])
        row = [_hashed(token), secrets.token_urlsafe(32), now + SESSION_S, name, hashed]
        query = "INSERT INTO sessions SELECT ?, name, ?, ? FROM users WHERE name = ? AND password = ? RETURNING 1"
        return token if self._run(query, row) else None

    def session(self, token: str, now: float) -> AdminSession | None:
        query = "SELECT name, form_token FROM sessions WHERE token = ? AND ends > ?"
        rows = self._run(query, [_hashed(token), now])
        return AdminSession(*rows[0]) if rows else None

    def close_session(self, token: str) -> None:
        self._run("DELETE FROM sessions WHERE token = ?", [_hashed(token)])

    def add_api_key(self, name: str, now: float) -> str | None:
        """Create and return a key for a program; only its hash is stored. Return None if the name is taken."""
        key = secrets.token_urlsafe(24)
        query = "INSERT INTO api_keys VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING name"
        return key if self._run(query, [_hashed(key), name, int(now)]) else None

    def remove_api_key(self, name: str) -> None:
        """Remove a key. The next request with it is refused."""
        self._run("DELETE FROM api_keys WHERE name = ?", [name])

    def api_keys(self) -> list[str]:
        return [name for (name,) in self._run("SELECT name FROM api_keys ORDER BY name")]

    def accepts_key(self, key: str) -> bool:
        """Return whether a program with this key may search. Without any keys, every program may."""
        query = "SELECT count(*), coalesce(sum(key = ?), 0) FROM api_keys"
        [(keys, found)] = self._run(query, [_hashed(key)])
        return not keys or bool(found)

    def add_takedown(self, infohashes: Sequence[str], reason: str, contact: str, decision: str, now: float) -> None:
        """Store a request. Raises `UsageError` if it is undecided, and WAITING_MAX others are, too."""
        if not decision and self.waiting() >= WAITING_MAX:
            raise UsageError("Too many requests are waiting: try again later.")
        row = [int(now), " ".join(infohashes), reason, contact, decision, int(now) if decision else None]
        self._run("INSERT INTO takedowns VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)

    def takedowns(self) -> list[Takedown]:
        """Return the oldest WAITING_SHOWN undecided requests, then the latest DECIDED_SHOWN decided ones."""
        waiting = self._run("SELECT * FROM takedowns WHERE decision = '' ORDER BY id LIMIT ?", [WAITING_SHOWN])
        decided = self._run(
            "SELECT * FROM takedowns WHERE decision != '' ORDER BY decided DESC LIMIT ?", [DECIDED_SHOWN]
        )
        return [*map(_takedown, waiting), *map(_takedown, decided)]

    def waiting(self) -> int:
        """Return the number of undecided requests."""
        [(waiting,)] = self._run("SELECT count(*) FROM takedowns WHERE decision = ''")
        return int(waiting)

    def takedown(self, number: int) -> Takedown | None:
        """Return this undecided request, or None."""
        rows = self._run("SELECT * FROM takedowns WHERE id = ? AND decision = ''", [number])
        return _takedown(rows[0]) if rows else None

    def decide(self, number: int, decision: str, now: float) -> None:
        """Store a decision, and delete the contact. A decided request does not change."""
        query = "UPDATE takedowns SET decision = ?, decided = ?, contact = '' WHERE id = ? AND decision = ''"
        self._run(query, [decision, int(now), number])
        self._run("PRAGMA wal_checkpoint(TRUNCATE)")  # the WAL still has the contact

    def forget_decided(self, before: float) -> None:
        if self._run("DELETE FROM takedowns WHERE decision != '' AND decided < ? RETURNING 1", [before]):
            self._run("PRAGMA wal_checkpoint(TRUNCATE)")  # the WAL still has the deleted texts

    def close(self) -> None:
        with self._turn:
            self._database.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._turn:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _end_sessions(self, name: str, statement: str, values: Sequence[Any]) -> bool:
        """Change an administrator, and end the sessions. Return whether a row was changed."""
        try:
            with self._turn, transaction(self._database):
                changed = bool(self._database.execute(statement, values).fetchall())
                if changed:
                    self._database.execute("DELETE FROM sessions WHERE name = ?", [name])
                return changed
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _refuse(self, found: DatabaseHeader) -> None:
        if (found.application_id or found.tables) and found.application_id != FORMAT:
            raise ForeignState(f"{self._path} is not the database of a search site")

    def _error(self, error: Exception) -> StateError:
        return storage_error(
            self._path, error, "for the requests of visitors", "the database of the site cannot be used: {}"
        )


def _takedown(row: Sequence[Any]) -> Takedown:
    return Takedown(row[0], row[1], tuple(row[2].split()), *row[3:])


def _hashed(token: str) -> bytes:
    return hashlib.blake2b(token.encode(errors="replace"), digest_size=32).digest()
