"""Connections to a server that speaks SphinxQL: Sphinx or Manticore."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from lycosa.core.errors import IndexFailure, IndexUnavailable, UsageError
from lycosa.search.core.sphinx_address import SphinxAddress

CONNECTIONS_MAX = 8
CONNECT_S = 5
ANSWER_MAX_S = 300
"""Maximum seconds for a statement: the server may be merging parts of an index."""
SEARCH_MAX_S = 30
"""Maximum seconds for a statement in a process that only searches, because visitors are waiting for it."""


class SphinxAnswer(NamedTuple):
    """The rows of an answer; `total` is the number of matches, if requested."""

    rows: list[tuple[Any, ...]]
    total: int


class SphinxServer:
    """A search server. Methods block; any thread may call them. Raises `UsageError` without the driver.

    Statements are independent and can be repeated: they are sent again if a reused connection fails, but not after a
    timeout. `answer_s` is the maximum time for an answer.
    """

    def __init__(self, address: SphinxAddress, answer_s: float = ANSWER_MAX_S) -> None:
        self.address, self._answer_s = address, answer_s
        try:
            self._module: Any = __import__("pymysql")
        except ImportError:
            raise UsageError(f"{address} needs pymysql: pip install 'lycosa[mysql]'") from None
        self._idle: list[Any] = []
        self._turns = threading.BoundedSemaphore(CONNECTIONS_MAX)

    def ask(self, statement: str, *, counted: bool = False) -> SphinxAnswer:
        """Send a statement. With `counted`, also request the total number of matches. Raises `IndexFailure`."""
        with self._turns:
            while True:
                connection, reused = self._take()
                try:
                    with self._errors():
                        answer = _send(connection, statement, counted=counted)
                except IndexUnavailable as failure:
                    connection.close()
                    if reused and not _was_too_slow(failure):
                        continue
                    raise
                except BaseException:
                    connection.close()
                    raise
                self._idle.append(connection)
                return answer

    def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            with suppress(self._module.Error):
                self._idle.pop().close()

    def _take(self) -> tuple[Any, bool]:
        with suppress(IndexError):
            return self._idle.pop(), True
        connection = self._module.connect(
            user="",
            charset="utf8mb4",
            autocommit=None,
            ssl_disabled=True,
            connect_timeout=CONNECT_S,
            read_timeout=self._answer_s,
            write_timeout=self._answer_s,
            defer_connect=True,
        )
        with self._errors():
            opened = _open_socket(self.address)  # PyMySQL does not close the socket of a failed attempt
            try:
                connection.connect(opened)
            except BaseException:
                opened.close()
                raise
        return connection, False

    @contextmanager
    def _errors(self) -> Iterator[None]:
        errors = self._module.err
        try:
            yield
        except (errors.OperationalError, errors.InterfaceError, OSError) as error:
            raise IndexUnavailable(
                f"the search server of {self.address} does not answer ({_reason(error)}): start searchd"
            ) from error
        except (errors.Error, ValueError) as error:
            reason = _reason(error)
            if "unknown local" in reason or "no such" in reason:
                reason += "; add the output of `lycosa index sphinx-config` to its configuration"
            raise IndexFailure(f"the search server at {self.address} returned an error: {reason}") from error


def _open_socket(address: SphinxAddress) -> socket.socket:
    if not address.socket:
        opened = socket.create_connection((address.host, address.port), CONNECT_S)
        opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return opened
    opened = socket.socket(socket.AF_UNIX)
    try:
        opened.settimeout(CONNECT_S)
        opened.connect(address.socket)
    except BaseException:
        opened.close()
        raise
    return opened


def _send(connection: Any, statement: str, *, counted: bool) -> SphinxAnswer:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        rows = list(cursor.fetchall())
        total = 0
        if counted:
            cursor.execute("SHOW META")
            total = int(dict(cursor.fetchall())["total_found"])
    return SphinxAnswer(rows, total)


def _was_too_slow(failure: IndexUnavailable) -> bool:
    cause = failure.__cause__
    return isinstance(cause, TimeoutError) or (cause is not None and isinstance(cause.__context__, TimeoutError))


def _reason(error: Exception) -> str:
    error = getattr(error, "original_exception", None) or error
    reason = getattr(error, "strerror", None) or str(error.args[-1] if error.args else error)
    return " ".join(reason.replace("\0", " ").split())[:200] or type(error).__name__
