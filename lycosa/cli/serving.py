"""A listening socket, and a server that a signal stops."""

from __future__ import annotations

import contextlib
import signal
import socket
from collections.abc import Iterator

import uvicorn

from lycosa.core.errors import LycosaError
from lycosa.infra.open_files import raise_open_files_limit
from lycosa.infra.web.listening import Access, PortInUse, open_listener

CONNECTIONS_MAX, CONNECTIONS_MIN = 4_000, 10
"""Maximum number of connections; fewer if the system allows fewer open files, but at least CONNECTIONS_MIN. While there
are more, requests are answered with status 503."""
OTHER_FILES = 200
"""Number of files and sockets that are no connections of clients."""
FINISH_TIMEOUT_S = 2
"""Maximum seconds until requests in progress finish after a signal."""


def listen(
    host: str, port: int, where: str, access: Access, *, advice: str = "--port 0", any_port: bool = False
) -> socket.socket:
    """Listen as `open_listener` does. `any_port`: if `port` is in use, take any free one."""
    try:
        return open_listener(host, port, where, access)
    except PortInUse:
        if any_port:
            return open_listener(host, 0, where, access)
        raise LycosaError(f"port {port} is in use: try {advice}") from None


class Server(uvicorn.Server):
    """A server that SIGINT or SIGTERM stops. uvicorn's own server would raise the signal again at the end."""

    def __init__(self, app: object, *, lifespan: bool = False) -> None:
        files = raise_open_files_limit(CONNECTIONS_MAX + OTHER_FILES)
        super().__init__(
            uvicorn.Config(
                app,  # type: ignore[arg-type]
                log_level="warning",
                access_log=False,
                server_header=False,
                lifespan="on" if lifespan else "off",
                limit_concurrency=max(min(CONNECTIONS_MAX, files - OTHER_FILES), CONNECTIONS_MIN),
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
        self.force_exit = self.should_exit  # after the second signal, the server does not wait for requests
        self.should_exit = True
        self._received = number
