"""Child processes that answer requests to a site, so that it uses more than one core.

Each child opens the site itself, and is connected to this process by a socket pair. This process accepts the clients'
connections, and passes GET and HEAD requests to the process that has the fewest in progress. If no process is ready, or
the chosen one ends, refuses the request or takes too long, this process answers the request itself.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

import uvloop

from lycosa.core.errors import LycosaError
from lycosa.infra.child_process import end_with_parent
from lycosa.infra.rpc.connection import Connection, FrameTooLong, PeerLost, RpcLimits
from lycosa.infra.rpc.methods import Service, methods_of
from lycosa.infra.web.pages import Message, Receive, Scope, Send

log = logging.getLogger(__name__)

LIMITS = RpcLimits(calls_max=1_000)
"""A child process refuses requests beyond `calls_max` in progress. The parent answers these itself."""
ANSWER_TIMEOUT_S = 30.0
"""A process that takes longer for a response is disconnected, and killed if it does not end by itself."""
RESTART_DELAY_S = 5.0
END_TIMEOUT_S = 5.0
"""Maximum seconds for a process to end after it was disconnected."""
PASSED = (
    "type",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
    "server",
)
"""The keys of an ASGI scope that are passed to a process."""

AsgiApp = Callable[[Scope, Receive, Send], Any]
OpenSite = Callable[[], AbstractAsyncContextManager[AsgiApp]]
"""Opens the site in a process. It must be picklable."""


class SiteResponse(NamedTuple):
    """The response to a request."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class SiteChild:
    """A child process's side: the methods that the parent calls."""

    def __init__(self, site: AsgiApp) -> None:
        self._site = site

    async def ready(self) -> None:
        """Return when the site is open."""

    async def respond(self, scope: dict[str, Any]) -> SiteResponse:
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Message) -> None:
            sent.append(message)

        try:
            await self._site(scope, receive, send)
        except Exception:
            if not sent:
                raise
            log.exception("a request failed")  # the site has responded with status 500, and raised the error again
        start, *parts = sent
        return SiteResponse(start["status"], start["headers"], b"".join(part.get("body", b"") for part in parts))


METHODS = methods_of(SiteChild)


async def warm_up(site: AsgiApp, paths: Sequence[str]) -> None:
    """Answer a request for each path and its query. Otherwise the first visitors wait until the templates are compiled
    and the files are read."""
    for each in paths:
        path, _, query = each.partition("?")
        scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http"}
        scope |= {"path": path, "query_string": query.encode(), "root_path": "", "headers": []}
        await SiteChild(site).respond(scope)


class SiteProcesses:
    """The child processes of a site, from `start` to `close`."""

    def __init__(self, open_site: OpenSite, count: int) -> None:
        self._open_site, self._count = open_site, count
        self._supervisors: list[asyncio.Task[None]] = []
        self._ready: list[Connection] = []

    def start(self) -> None:
        """Start the processes in the background."""
        self._supervisors = [asyncio.create_task(self._supervise()) for _ in range(self._count)]

    async def close(self) -> None:
        """End the processes."""
        for supervisor in self._supervisors:
            supervisor.cancel()
        await asyncio.gather(*self._supervisors, return_exceptions=True)

    async def respond(self, scope: Scope) -> SiteResponse | None:
        """Return the response of a process. Return None if there is none: this process must answer."""
        connection = min(self._ready, key=lambda each: len(each.pending), default=None)
        if connection is None:
            return None
        passed = {key: scope[key] for key in PASSED if key in scope}
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                response: SiteResponse = await connection.call("respond", (passed,))
                return response
        except TimeoutError:
            connection.abort()  # so its supervisor ends it
        except (PeerLost, FrameTooLong, LycosaError) as error:
            log.debug("a process of the site has not answered: %s", error)
        return None

    async def _supervise(self) -> None:
        """Run one process. Start it again when it ends."""
        while True:
            try:
                code = await self._run()
            except OSError as error:
                log.warning("a process of the site cannot be started: %s", error)
            except Exception:
                log.exception("a process of the site failed")
            else:
                log.warning("a process of the site ended (exit code %s); restarting it", code)
            await asyncio.sleep(RESTART_DELAY_S)

    async def _run(self) -> int | None:
        """Run a process until it is disconnected. Return its exit code."""
        ended = asyncio.Event()
        connection = Connection(LIMITS, METHODS, on_disconnect=lambda _: ended.set())
        ours, theirs = socket.socketpair()
        with ours, theirs:
            process = multiprocessing.get_context("spawn").Process(target=run_child, args=(self._open_site, theirs))
            process.start()
            theirs.close()
            try:
                await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=ours)
                with suppress(PeerLost):
                    await connection.call("ready", ())
                    self._ready.append(connection)
                    await ended.wait()
            finally:
                if connection in self._ready:
                    self._ready.remove(connection)
                connection.close()
                await asyncio.to_thread(_end, process)
        return process.exitcode


def _end(process: SpawnProcess) -> None:
    """Wait until a disconnected process has ended; kill it if it takes too long."""
    process.join(END_TIMEOUT_S)
    process.kill()
    process.join()


def run_child(open_site: OpenSite, sock: socket.socket) -> None:
    """Answer requests in a child process until the parent disconnects."""
    end_with_parent()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # sent to all processes of a service; the parent ends this one
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(open_site, sock))
        except LycosaError as error:
            sys.exit(str(error))


async def _serve(open_site: OpenSite, sock: socket.socket) -> None:
    async with open_site() as site:
        ended = asyncio.Event()
        connection = Connection(LIMITS, service=Service(METHODS, SiteChild(site)), on_disconnect=lambda _: ended.set())
        await asyncio.get_running_loop().create_unix_connection(lambda: connection, sock=sock)
        await ended.wait()


class AnswerInProcesses:
    """ASGI middleware: the processes answer the GET and HEAD requests for paths that `is_passed` accepts."""

    def __init__(self, app: AsgiApp, processes: SiteProcesses, is_passed: Callable[[str], bool]) -> None:
        self._app, self._processes, self._is_passed = app, processes, is_passed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response = None
        if scope["type"] == "http" and scope["method"] in {"GET", "HEAD"} and self._is_passed(scope["path"]):
            response = await self._processes.respond(scope)
        if response is None:
            await self._app(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": response.status, "headers": response.headers})
        await send({"type": "http.response.body", "body": response.body})
