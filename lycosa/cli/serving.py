"""What commands that serve pages share: an address to listen on, and a server that ends with a signal."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterator

import uvicorn

from lycosa.core.errors import LycosaError, UsageError

FINISH_S = 2
"""Longest that requests under way may take after a signal."""


def listen(
    host: str, port: int, option: str = "--bind", *, advice: str = "--port 0", or_any: bool = False
) -> socket.socket:
    """Return a socket that listens there, on a free port if it is taken and that will do.

    Raises `UsageError` for what is no address, `LycosaError` for one that cannot be had.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{option} {host}: {getattr(error, 'strerror', None) or 'no such address'}") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and or_any:
            return listen(host, 0, option)
        if error.errno == errno.EADDRINUSE:
            raise LycosaError(f"port {port} is in use: try {advice}") from None
        what = os.strerror(error.errno) if error.errno else str(error)
        raise LycosaError(f"cannot listen on {host} port {port}: {what.lower()}") from None


class Server(uvicorn.Server):
    """Leaves it to us what a signal means; uvicorn would send it to the process again when it is done."""

    def __init__(self, app: object, *, lifespan: bool = False, connections_max: int | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on" if lifespan else "off",
                limit_concurrency=connections_max,
                timeout_graceful_shutdown=FINISH_S,
            )
        )
        self._received = 0

    @property
    def interrupted(self) -> bool:
        """Whether it was SIGINT."""
        return self._received == signal.SIGINT

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End when a signal says so."""
        previous = {each: signal.signal(each, self._end) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in previous.items():
                signal.signal(each, handler)

    def _end(self, number: int, _frame: object) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True
        self._received = number
