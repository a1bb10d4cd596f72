"""Helpers for commands that serve pages: a listening socket, and a server that a signal stops."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterator

import uvicorn

from lycosa.core.errors import LycosaError, UsageError

FINISH_TIMEOUT_S = 2
"""Seconds that requests in progress have to finish after a signal."""


def listen(
    host: str, port: int, option: str = "--bind", *, advice: str = "--port 0", any_port: bool = False
) -> socket.socket:
    """Return a socket that listens on the address. With `any_port` it takes a free port if this one is in use.

    `option` and `advice` are for messages. Raises `UsageError` for an address that does not exist, `LycosaError` for
    one that cannot be used.
    """
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise UsageError(f"{option} {host}: {getattr(error, 'strerror', None) or 'no such address'}") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and any_port:
            return listen(host, 0, option)
        if error.errno == errno.EADDRINUSE:
            raise LycosaError(f"port {port} is in use: try {advice}") from None
        problem = os.strerror(error.errno) if error.errno else str(error)
        raise LycosaError(f"cannot listen on {host} port {port}: {problem.lower()}") from None


class Server(uvicorn.Server):
    """A server that SIGINT or SIGTERM stops. uvicorn's own server would raise the signal again at the end."""

    def __init__(self, app: object, *, lifespan: bool = False, connections_max: int | None = None) -> None:
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on" if lifespan else "off",
                limit_concurrency=connections_max,
                timeout_graceful_shutdown=FINISH_TIMEOUT_S,
            )
        )
        self._received = 0

    @property
    def interrupted(self) -> bool:
        """Whether SIGINT stopped the server."""
        return self._received == signal.SIGINT

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        previous = {number: signal.signal(number, self._end) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)

    def _end(self, number: int, _frame: object) -> None:
        self.force_exit = self.should_exit  # the second signal does not wait for requests
        self.should_exit = True
        self._received = number
