"""What the site itself keeps, in one SQLite file: administrators, their sessions, and requests for takedown.

    users       name, Argon2 hash of the password
    sessions    hash of the token in the cookie, name, token of its forms, when it ends
    api_keys    hash of the key, name, when it was made
    takedowns   when, infohashes, reason, contact (until it is decided), what was decided, and when

Its methods block. Nothing about visitors is kept.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.core.errors import ForeignState, StateError, UsageError
from lycosa.infra.sqlite import DatabaseHeader, open_database, storage_error

FORMAT = int.from_bytes(b"LySi")
VERSION = 1
SESSION_S = 12 * 3600
WAITING_MAX = 1000
"""Requests for takedown that wait: beyond, no more are taken."""
DECIDED_SHOWN = 50
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
    """A request to remove torrents. `decision` is "" while it waits, then "accepted" or "refused"."""

    id: int
    at: int
    infohashes: tuple[str, ...]
    reason: str
    contact: str
    decision: str
    decided: int | None


class SiteStore:
    """See the module. Raises `StateError`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._turn = threading.Lock()
        try:
            self._database = open_database(path, self._refuse, TABLES, sync=True)
        except sqlite3.Error as error:
            raise self._error(error) from error

    def set_password(self, name: str, hashed: str) -> None:
        """Add an administrator, or change the password. It ends the sessions."""
        self._run("REPLACE INTO users VALUES (?, ?)", [name, hashed])
        self._run("DELETE FROM sessions WHERE name = ?", [name])

    def password(self, name: str) -> str | None:
        """Return the hash of a password."""
        rows = self._run("SELECT password FROM users WHERE name = ?", [name])
        return rows[0][0] if rows else None

    def has_users(self) -> bool:
        """Return whether anybody can log in."""
        return bool(self._run("SELECT 1 FROM users LIMIT 1"))

    def open_session(self, name: str, now: float) -> str:
        """Begin a session. Return the token for the cookie, which is not stored."""
        token = secrets.token_urlsafe(32)
        self._run("DELETE FROM sessions WHERE ends <= ?", [now])
        row = [_hashed(token), name, secrets.token_urlsafe(32), now + SESSION_S]
        self._run("INSERT INTO sessions VALUES (?, ?, ?, ?)", row)
        return token

    def session(self, token: str, now: float) -> AdminSession | None:
        """Return the session of a cookie."""
        query = "SELECT name, form_token FROM sessions WHERE token = ? AND ends > ?"
        rows = self._run(query, [_hashed(token), now])
        return AdminSession(*rows[0]) if rows else None

    def close_session(self, token: str) -> None:
        """End a session."""
        self._run("DELETE FROM sessions WHERE token = ?", [_hashed(token)])

    def add_api_key(self, name: str, now: float) -> str | None:
        """Make a key for a program. Return it: it is not stored. None if there is one of this name."""
        key = secrets.token_urlsafe(24)
        query = "INSERT INTO api_keys VALUES (?, ?, ?) ON CONFLICT (name) DO NOTHING RETURNING name"
        return key if self._run(query, [_hashed(key), name, int(now)]) else None

    def remove_api_key(self, name: str) -> None:
        """Remove a key: it is refused from the next request on."""
        self._run("DELETE FROM api_keys WHERE name = ?", [name])

    def api_keys(self) -> list[str]:
        """Return the names of the keys."""
        return [name for (name,) in self._run("SELECT name FROM api_keys ORDER BY name")]

    def accepts_key(self, key: str) -> bool:
        """Return whether a program with this key may search: any may while there are no keys."""
        query = "SELECT count(*), coalesce(sum(key = ?), 0) FROM api_keys"
        [(keys, found)] = self._run(query, [_hashed(key)])
        return not keys or bool(found)

    def add_takedown(self, infohashes: Sequence[str], reason: str, contact: str, decision: str, now: float) -> None:
        """Store a request. Raises `UsageError` if too many wait."""
        [(waiting,)] = self._run("SELECT count(*) FROM takedowns WHERE decision = ''")
        if waiting >= WAITING_MAX:
            raise UsageError("too many requests are waiting: try again later")
        row = [int(now), " ".join(infohashes), reason, contact, decision, int(now) if decision else None]
        self._run("INSERT INTO takedowns VALUES (NULL, ?, ?, ?, ?, ?, ?)", row)

    def takedowns(self) -> list[Takedown]:
        """Return the requests that wait, oldest first, then some that were decided."""
        waiting = self._run("SELECT * FROM takedowns WHERE decision = '' ORDER BY id")
        decided = self._run(
            "SELECT * FROM takedowns WHERE decision != '' ORDER BY decided DESC LIMIT ?", [DECIDED_SHOWN]
        )
        return [Takedown(row[0], row[1], tuple(row[2].split()), *row[3:]) for row in [*waiting, *decided]]

    def takedown(self, number: int) -> Takedown | None:
        """Return a request that waits."""
        return next((each for each in self.takedowns() if each.id == number and not each.decision), None)

    def decide(self, number: int, decision: str, now: float) -> None:
        """Note what was decided. The contact is not needed any more, and removed."""
        query = "UPDATE takedowns SET decision = ?, decided = ?, contact = '' WHERE id = ?"
        self._run(query, [decision, int(now), number])

    def close(self) -> None:
        """Release the file."""
        with self._turn:
            self._database.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._turn:
                return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._error(error) from error

    def _refuse(self, found: DatabaseHeader) -> None:
        if (found.application_id or found.tables) and found.application_id != FORMAT:
            raise ForeignState(f"{self._path} is not the file of a search site")

    def _error(self, error: Exception) -> StateError:
        return storage_error(self._path, error, "for the requests of visitors", "the site's own file fails: {}")


def _hashed(token: str) -> bytes:
    return hashlib.blake2b(token.encode(errors="replace"), digest_size=32).digest()
