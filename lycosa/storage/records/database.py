"""A database connection in its own thread. Each call of `_run` is a transaction. After a lost connection, the next call
connects again.

All statements are SQL that every supported database understands, with ? as the placeholder.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

from lycosa.core.errors import LycosaError, StorageError
from lycosa.storage.records.outages import TEMPORARY, OutageWait

Result = TypeVar("Result")
Row = tuple[Any, ...]

VALUES_MAX = 900


class DatabaseThread(ABC):
    """Runs transactions. Subclasses connect to the database and translate its errors."""

    placeholder = "%s"

    def __init__(self) -> None:
        self.outage_wait: OutageWait | None = None
        """Waits while the database is unavailable. If it is None, errors are raised at once."""
        self._executor = ThreadPoolExecutor(1, "records")  # one thread: a call waits until a cancelled call ends
        self._connection: Any = None
        self._closed = False

    @abstractmethod
    def _connect(self) -> Any: ...

    def _begin(self, *, write: bool) -> None:
        self._execute("BEGIN")

    @abstractmethod
    def _error(self, error: Exception) -> LycosaError | None:
        """Translate an error of the database; None for any other error."""

    async def _run(self, work: Callable[[], Result], *, write: bool = False) -> Result:
        return await self._retried(lambda: self._transaction(work, write))

    async def _retried(self, work: Callable[[], Result]) -> Result:
        while True:
            if self._closed:
                raise StorageError("the record store is closed")
            try:
                result = await self._in_thread(work)
            except TEMPORARY as error:
                if self.outage_wait is None:
                    raise
                await self.outage_wait.wait(error)
            else:
                if self.outage_wait is not None:
                    self.outage_wait.succeeded()
                return result

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    def _transaction(self, work: Callable[[], Result], write: bool) -> Result:
        def transaction() -> Result:
            self._begin(write=write)
            if write:
                self._execute("UPDATE torrent_store SET next_id = next_id")  # locks the row: writers take turns
            result = work()
            self._execute("COMMIT")
            return result

        return self._connected(transaction)

    def _connected(self, work: Callable[[], Result]) -> Result:
        try:
            if self._connection is None:
                self._connection = self._connect()
            return work()
        except Exception as error:
            self._roll_back()
            if translated := self._error(error):
                raise translated from error
            raise

    def _roll_back(self) -> None:
        try:
            if self._connection is not None:
                self._execute("ROLLBACK")
        except Exception:  # noqa: BLE001  the connection is lost: the next call opens another
            self._disconnect()

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):  # the connection may be lost already
                connection.close()

    def _execute(self, statement: str, values: Sequence[Any] = ()) -> Any:
        cursor = self._connection.cursor()
        cursor.execute(statement.replace("?", self.placeholder), values)
        return cursor

    def _execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        if rows:
            self._connection.cursor().executemany(statement.replace("?", self.placeholder), rows)

    def _query(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        return list(self._execute(statement, values).fetchall())

    def _select(self, start: str, column: str, keys: Iterable[Any]) -> Iterator[Row]:
        for some in slices(list(keys), VALUES_MAX):
            yield from self._query(f"{start} {column} IN ({marks(len(some))})", some)

    def _delete(self, table: str, column: str, keys: Iterable[Any]) -> None:
        for some in slices(list(keys), VALUES_MAX):
            self._execute(f"DELETE FROM {table} WHERE {column} IN ({marks(len(some))})", some)

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        for some in slices(rows, VALUES_MAX // 5):
            places = ", ".join(f"({marks(len(row))})" for row in some)
            self._execute(f"INSERT INTO {table} VALUES {places}", [value for row in some for value in row])


def marks(count: int) -> str:
    """Return placeholders for this many values."""
    return ", ".join("?" * count)


def slices(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Divide the values into parts of at most `size` values."""
    return (values[start : start + size] for start in range(0, len(values), size))
