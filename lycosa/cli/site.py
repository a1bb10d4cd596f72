"""`lycosa site`: search an index in the browser, until SIGINT (exit code 130) or SIGTERM (0)."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
from collections.abc import Iterator

import click

from lycosa.cli.folders import index_folder, index_option
from lycosa.cli.outcome import DONE, INTERRUPTED
from lycosa.core.errors import LycosaError, UsageError

PORT = 8080
"""What is tried first when no port is asked for."""
FINISH_S = 2
"""Longest that requests under way may take after a signal."""


@click.command("site")
@index_option
@click.option(
    "--port", type=click.IntRange(0, 65535), metavar="N", help=f"0 for a free one.  [default: {PORT} or a free one]"
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDR", help="Address to listen on.")
@click.option("--title", default="Lycosa", show_default=True, metavar="S", help="What the site calls itself.")
def command(index_dir: str | None, port: int | None, host: str, title: str) -> int:
    """Open a search site over an index: a box, results, and the same as JSON (/api).

    It may run while a crawl fills the index. It has no password: think before you listen on more than 127.0.0.1.

    \b
    lycosa site --index index
    """
    from lycosa.app.search import open_index
    from lycosa.web.site import build_site

    index = open_index(index_folder(index_dir))
    try:
        with contextlib.closing(_listen(host, port)) as listener:
            address = listener.getsockname()
            shown = f"[{host}]" if ":" in host else host
            print(f"Search site: http://{shown}:{address[1]}/  (Ctrl-C stops it)", flush=True)
            return _serve(build_site(index, title=title), listener)
    finally:
        index.close()


def _listen(host: str, port: int | None) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, PORT if port is None else port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UsageError(f"--host {host}: {error.strerror}") from None
    try:
        return socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        if error.errno == errno.EADDRINUSE and port is None:
            return _listen(host, 0)
        if error.errno == errno.EADDRINUSE:
            raise LycosaError(f"port {port} is in use: try --port 0") from None
        what = os.strerror(error.errno) if error.errno else str(error)
        raise LycosaError(f"cannot listen on {host} port {PORT if port is None else port}: {what.lower()}") from None


def _serve(app: object, listener: socket.socket) -> int:
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves it to us what a signal means; uvicorn would send it to the process again when it is done."""

        received = 0

        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            previous = {each: signal.signal(each, self._end) for each in (signal.SIGINT, signal.SIGTERM)}
            try:
                yield
            finally:
                for each, handler in previous.items():
                    signal.signal(each, handler)

        def _end(self, number: int, _frame: object) -> None:
            self.force_exit = self.should_exit
            self.should_exit = True
            self.received = number

    config = uvicorn.Config(
        app,  # type: ignore[arg-type]
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=FINISH_S,
    )
    server = Server(config)
    server.run(sockets=[listener])
    return INTERRUPTED if server.received == signal.SIGINT else DONE
