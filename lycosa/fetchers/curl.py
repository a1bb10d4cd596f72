"""HTTP by libcurl's multi interface on the running loop: one future a transfer, no thread, no task.

libcurl tells which sockets to watch and when to call it; this file does that with `add_reader`, `add_writer` and one
timer, and feeds what happens back (`socket_action`). Easy handles are pooled with their constant options set once.
Decompression (gzip, deflate, br), HTTP/2, TLS, proxies, DNS caching and keep-alive are libcurl's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pycurl

from lycosa.core.errors import FetchError
from lycosa.core.model import Request, Response
from lycosa.fetchers.handle import Handle
from lycosa.fetchers.reasons import error_of
from lycosa.ports import Accept

IDLE_HANDLES_MAX = 256
BODY_MAX = 16 << 20
CONNECTIONS_MAX = 1024
IDLE_CONNECTIONS_MAX = 256


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """`timeout_s` is for a whole transfer, `connect_timeout_s` for name, connection and handshake.

    `max_body_bytes` counts after decompression; `headers` go with every request; `connections_per_host_max` 0 means no
    limit of its own.
    """

    user_agent: str = "Lycosa"
    timeout_s: float = 30.0
    connect_timeout_s: float = 10.0
    max_body_bytes: int = BODY_MAX
    headers: Mapping[str, str] = field(default_factory=dict)
    proxy: str = ""
    connections_max: int = CONNECTIONS_MAX
    connections_per_host_max: int = 0
    insecure: bool = False


class CurlFetcher:
    """See `ports.Fetcher`. Create it where a loop runs; `close` it there."""

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, settings.connections_max)
        self._multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, settings.connections_per_host_max)
        self._multi.setopt(pycurl.M_MAXCONNECTS, IDLE_CONNECTIONS_MAX)
        self._idle: list[Handle] = []
        self._busy: dict[pycurl.Curl, tuple[Handle, asyncio.Future[Response]]] = {}
        self._watched: dict[int, int] = {}
        self._timer: asyncio.Handle | None = None

    async def fetch(self, request: Request, *, accept: Accept | None = None, max_body: int | None = None) -> Response:
        """Do one transfer. See the port."""
        handle = self._idle.pop() if self._idle else Handle(self._settings)
        try:
            handle.prepare(request, accept, self._settings.max_body_bytes if max_body is None else max_body)
        except Exception:
            handle.curl.close()
            raise
        future: asyncio.Future[Response] = self._loop.create_future()
        self._busy[handle.curl] = handle, future
        self._multi.add_handle(handle.curl)
        try:
            return await future
        except asyncio.CancelledError:
            if not future.done() or future.cancelled():  # else the handle may be at work for another already
                self._forget(handle)
            raise

    async def close(self) -> None:
        """Abort everything, close every connection."""
        for handle, future in list(self._busy.values()):
            self._forget(handle)
            if not future.done():
                future.set_exception(FetchError("the fetcher was closed"))
        self._set_timer(-1)
        for handle in self._idle:
            handle.curl.close()
        self._idle.clear()
        self._multi.close()
        for fd in list(self._watched):
            self._unwatch(fd)

    def _watch(self, event: int, fd: int, _multi: Any, _data: Any) -> None:
        if event == pycurl.POLL_REMOVE:
            self._unwatch(fd)
            return
        before = self._watched.get(fd, 0)
        wanted = (event & pycurl.POLL_IN and 1) | (event & pycurl.POLL_OUT and 2)
        self._watched[fd] = wanted
        if wanted & 1 and not before & 1:
            self._loop.add_reader(fd, self._act, fd, pycurl.CSELECT_IN)
        elif before & 1 and not wanted & 1:
            self._loop.remove_reader(fd)
        if wanted & 2 and not before & 2:
            self._loop.add_writer(fd, self._act, fd, pycurl.CSELECT_OUT)
        elif before & 2 and not wanted & 2:
            self._loop.remove_writer(fd)

    def _unwatch(self, fd: int) -> None:
        watched = self._watched.pop(fd, 0)
        if watched & 1:
            self._loop.remove_reader(fd)
        if watched & 2:
            self._loop.remove_writer(fd)

    def _set_timer(self, timeout_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if timeout_ms == 0:
            self._timer = self._loop.call_soon(self._time_is_up)
        elif timeout_ms > 0:
            self._timer = self._loop.call_later(timeout_ms / 1000, self._time_is_up)

    def _time_is_up(self) -> None:
        self._timer = None
        self._act(pycurl.SOCKET_TIMEOUT, 0)

    def _act(self, fd: int, event: int) -> None:
        self._multi.socket_action(fd, event)
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for curl in good:
                self._done(curl, 0, "")
            for curl, code, message in bad:
                self._done(curl, code, message)

    def _done(self, curl: pycurl.Curl, code: int, message: str) -> None:
        handle, future = self._busy[curl]
        result = handle.result(code)
        if result is None:
            result = error_of(code, message, curl, self._settings.timeout_s)
        self._forget(handle)
        if future.done():
            return
        if isinstance(result, Response):
            future.set_result(result)
        else:
            future.set_exception(result)

    def _forget(self, handle: Handle) -> None:
        del self._busy[handle.curl]
        self._multi.remove_handle(handle.curl)
        handle.clear()
        if len(self._idle) < IDLE_HANDLES_MAX:
            self._idle.append(handle)
        else:
            handle.curl.close()
