"""Record stores on PostgreSQL and on MySQL or MariaDB, which several crawlers may share.

    postgresql://USER:PASSWORD@HOST[:PORT]/DATABASE      further options as in libpq: ?sslmode=verify-full
    mysql://USER:PASSWORD@HOST[:PORT]/DATABASE           MySQL or MariaDB; ?socket=/PATH, ?ca=FILE for TLS

After a connection error, the next call connects again. The size of the store is not limited.
"""

from __future__ import annotations

import asyncio
import os
import socket
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from lycosa.core.errors import (
    ForeignState,
    LycosaError,
    StateError,
    StorageError,
    StorageFull,
    StorageUnavailable,
    UsageError,
)
from lycosa.storage.core.torrent_record import RecordPolicy
from lycosa.storage.records.rows import ADD_COLUMN, NAMES, NEW_COLUMN, TABLES
from lycosa.storage.records.tables import TableRecordStore

Result = TypeVar("Result")

CONNECT_S = 10
ANSWER_MAX_S = 300
"""A server that has not answered for this time counts as unavailable."""
CREATE_LOCK = 0x4C795452
MYSQL_PORT = 3306
MYSQL_FULL = {1021, 1041, 1114}
"""Disk full, out of resources, table full."""
NO_SPACE = "no space left on device"
"""The system's message for a full disk. Servers quote it even in errors whose codes do not say that the disk is full.
"""
EXTRAS = {"psycopg": "postgresql", "pymysql": "mysql"}


def open_sql_records(url: str, policy: RecordPolicy | None = None) -> SqlRecordStore:
    """Return the store at a URL. Raises `UsageError`."""
    scheme, shown = url.partition("://")[0], without_password(url)
    if scheme in {"postgresql", "postgres"}:
        return PostgresqlRecordStore(url, shown, policy)
    if scheme in {"mysql", "mariadb"}:
        _check(url, shown)
        return MysqlRecordStore(url, shown, policy)
    raise UsageError(
        f"{shown} is not a database server: write postgresql://HOST/DATABASE or mysql://HOST/DATABASE, or give the"
        " folder of torrents.sqlite with --state"
    )


def without_password(url: str) -> str:
    """Return a URL without user, password and options, so that it can be shown."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _check(url: str, shown: str) -> None:
    """Raise `UsageError` for an invalid URL, without the message of `urlsplit`: it may contain part of the password."""
    try:
        _ = urlsplit(url).port
    except ValueError:
        raise UsageError(
            f"{shown}: write mysql://USER:PASSWORD@HOST:PORT/DATABASE, and characters such as / in the password as %2F"
        ) from None


class SqlRecordStore(TableRecordStore):
    """See `RecordStore`. `shown` is the URL without its password."""

    driver: str
    schema: str
    """The SQL expression for the schema of the tables."""

    def __init__(self, url: str, shown: str, policy: RecordPolicy | None = None) -> None:
        super().__init__(policy)
        self._url = url
        self._shown = shown
        try:
            self._module: Any = __import__(self.driver)
        except ImportError:
            name = EXTRAS[self.driver]
            raise UsageError(f"{shown} needs {self.driver}: pip install 'lycosa[{name}]'") from None

    @abstractmethod
    def _tables(self) -> set[str]: ...

    @abstractmethod
    def _lock_creation(self) -> None:
        """Acquire the lock for the creation of the tables. Closing the connection releases the lock."""

    @abstractmethod
    def _is_full(self, error: Exception) -> bool: ...

    def _prepare(self, connection: Any) -> Any:
        """Create the tables if there are none, and add the column that earlier versions lack."""
        self._connection = connection
        if self._tables() >= NAMES and self._has_column() and self._query("SELECT 1 FROM torrent_store"):
            return connection
        self._lock_creation()
        there = NAMES & self._tables()
        if there and "torrent_store" not in there:
            raise ForeignState(
                f"{self._shown} has other tables named {', '.join(sorted(there))}; give another database"
            )
        # The row of torrent_store is inserted last.
        is_complete = "torrent_store" in there and self._query("SELECT 1 FROM torrent_store")
        if is_complete and there != NAMES:  # dropping the others would lose torrents
            raise StateError(
                f"{self._shown} lacks these tables of Lycosa: {', '.join(sorted(NAMES - there))}; restore the database"
            )
        if not is_complete:  # else another process has made them
            for name in sorted(there, key=lambda name: name == "torrent_store"):  # left by an interrupted creation
                self._execute(f"DROP TABLE {name}")
            for statement in TABLES:
                self._execute(statement.format_map(self.types))
        elif not self._has_column():
            self._execute(ADD_COLUMN.format_map(self.types))
        self._disconnect()  # unlocks
        return self._connect()

    def _has_column(self) -> bool:
        columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'torrent_denied'"
        return NEW_COLUMN in {name for (name,) in self._query(f"{columns} AND table_schema = {self.schema}")}

    def _error(self, error: Exception) -> LycosaError | None:
        if isinstance(error, RuntimeError):  # from pymysql, if a login needs another package
            return StorageError(f"{self._shown}: the database of torrents cannot be used: {error}")
        if not isinstance(error, (self._module.Error, OSError)):
            return None
        reason = str(error.args[-1] if error.args else error).strip().partition("\n")[0]
        if self._is_full(error) or NO_SPACE in str(error).lower():
            return StorageFull(f"{self._shown}: the server has no space left ({reason}); nothing is lost; make room")
        passing = isinstance(error, (self._module.OperationalError, self._module.InterfaceError, OSError))
        found = StorageUnavailable if passing else StorageError
        return found(f"{self._shown}: the database of torrents cannot be used: {reason}")


class PostgresqlRecordStore(SqlRecordStore):
    """Shuts down the connection if a call, including its wait for earlier calls, takes longer than ANSWER_MAX_S."""

    driver = "psycopg"
    schema = "current_schema()"
    types = {
        "integer": "integer",
        "bigint": "bigint",
        "id": "bigint",
        "hash": "bytea",
        "blob": "bytea",
        "text": "text",
        "clustered": "",
        "engine": "",
    }

    def _connect(self) -> Any:
        connection = self._module.connect(
            self._url,
            autocommit=True,  # transactions begin explicitly
            connect_timeout=CONNECT_S,
            keepalives_idle=CONNECT_S,
            tcp_user_timeout=ANSWER_MAX_S * 1000,
            prepare_threshold=None,
        )
        return self._prepare(connection)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        # psycopg has no time limit for an answer, and the kernel of a frozen server still acknowledges what is sent.
        watchdog = asyncio.get_running_loop().call_later(ANSWER_MAX_S, self._abort)
        try:
            return await super()._in_thread(work)
        finally:
            watchdog.cancel()

    def _abort(self) -> None:
        """Shut down the connection, so that the thread that waits for an answer gets an error."""
        with suppress(Exception), socket.socket(fileno=os.dup(self._connection.fileno())) as connection:
            connection.shutdown(socket.SHUT_RDWR)

    def _tables(self) -> set[str]:
        return {name for (name,) in self._query("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()")}

    def _lock_creation(self) -> None:
        self._execute(f"SELECT pg_advisory_lock({CREATE_LOCK})")

    def _is_full(self, error: Exception) -> bool:
        return getattr(error, "sqlstate", None) == "53100"

    def _used_bytes(self) -> int:
        sizes = ", ".join(f"('{name}')" for name in sorted(NAMES))
        return int(self._query(f"SELECT sum(pg_total_relation_size(n::regclass)) FROM (VALUES {sizes}) t (n)")[0][0])


class MysqlRecordStore(SqlRecordStore):
    """A record store on MySQL or MariaDB, with the engine InnoDB."""

    driver = "pymysql"
    schema = "DATABASE()"
    types = {
        "integer": "INT",
        "bigint": "BIGINT",
        "id": "BIGINT",
        "hash": "VARBINARY(32)",
        "blob": "LONGBLOB",
        "text": "TEXT CHARACTER SET utf8mb4",
        "clustered": " ENGINE=InnoDB",
        "engine": " ENGINE=InnoDB",
    }

    def _connect(self) -> Any:
        parts = urlsplit(self._url)
        options = dict(parse_qsl(parts.query))
        connection = self._module.connect(
            host=parts.hostname or "localhost",
            port=parts.port or MYSQL_PORT,
            user=unquote(parts.username or "root"),
            password=unquote(parts.password or ""),
            database=unquote(parts.path[1:]),
            unix_socket=options.get("socket"),
            ssl={"ca": options["ca"]} if "ca" in options else None,
            charset="utf8mb4",
            autocommit=True,  # transactions begin explicitly
            connect_timeout=CONNECT_S,
            read_timeout=ANSWER_MAX_S,
            write_timeout=ANSWER_MAX_S,
            init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        )
        return self._prepare(connection)

    def _tables(self) -> set[str]:
        return {name for (name,) in self._query("SHOW TABLES")}

    def _lock_creation(self) -> None:
        self._execute(f"SELECT GET_LOCK('lycosa records {CREATE_LOCK}', {ANSWER_MAX_S})")

    def _is_full(self, error: Exception) -> bool:
        return bool(error.args) and error.args[0] in MYSQL_FULL

    def _used_bytes(self) -> int:
        sizes = "SELECT table_name, data_length + index_length FROM information_schema.tables"
        return sum(int(size) for name, size in self._query(f"{sizes} WHERE table_schema = DATABASE()") if name in NAMES)
