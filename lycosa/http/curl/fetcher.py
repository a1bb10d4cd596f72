"""HTTP by libcurl's multi interface on the running loop: one future per transfer, no threads, no tasks.

libcurl says which sockets to watch and when to call it again; this module reports the sockets' events. Easy handles are
pooled with their constant options set. Redirects, cookies and retries are left to the caller.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import lru_cache
from typing import Unpack

import pycurl

from lycosa.core.errors import BadResponse, BadSetting, FetchError, StopDownload
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.errors import UNDECODABLE, error_of, note_proxy_progress
from lycosa.http.curl.handle import FetchSettings, Handle, ca_bundle
from lycosa.http.curl.sockets import sockets_of
from lycosa.http.ports import FetchOptions, Into

__all__ = ["CurlFetcher", "FetchSettings"]

IDLE_HANDLES_MAX = 256
IDLE_CONNECTIONS_MAX = 256
ANSWERS_MAX = 4096


class CurlFetcher:
    """Implements the `Fetcher` port with libcurl. Create and `close` it in a running loop.

    The constructor raises `BadSetting`. `request.meta` may set options of its transfer: `proxy`, `download_timeout`
    (seconds), `download_maxsize` (bytes), `bindaddress` and `download_fail_on_dataloss`. The options `proxy` and
    `max_body` of `fetch` override those in `meta`. The login in a proxy's URL is sent to that proxy only. With a proxy,
    the option `address` is ignored: the proxy resolves the host.
    """

    def __init__(self, settings: FetchSettings) -> None:
        self._settings = settings = replace(settings, may_connect=lru_cache(ANSWERS_MAX)(settings.may_connect))
        self._bundle = ca_bundle()
        try:
            self._idle = [Handle(settings, self._bundle)]
        except (ValueError, TypeError, pycurl.error) as error:
            raise BadSetting(f"cannot fetch with these settings: {error}") from error
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets_of(self._loop, self._report_events)
        self._multi = pycurl.CurlMulti()
        self._multi.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._multi.setopt(pycurl.M_TIMERFUNCTION, self._set_timer)
        self._multi.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, settings.connections_max)
        self._multi.setopt(pycurl.M_MAX_HOST_CONNECTIONS, settings.connections_per_host_max)
        self._multi.setopt(pycurl.M_MAXCONNECTS, IDLE_CONNECTIONS_MAX)
        self._busy: dict[pycurl.Curl, tuple[Handle, asyncio.Future[HttpResponse | Exception]]] = {}
        self._deadline = 0.0
        self._timer: asyncio.Handle | None = None  # uvloop returns a plain Handle for a time in the past
        self._fires_at = 0.0
        self._kick: asyncio.Handle | None = None
        self._closed = False

    async def fetch(self, request: Request, **options: Unpack[FetchOptions]) -> HttpResponse:
        """If libcurl cannot decompress the body of a GET, fetch it once more, and decompress it more leniently.

        This is not done after a part of the body was passed to `into`.
        """
        into = options.get("into")
        passed_on: list[bool] = []
        if into is not None:
            options["into"] = _noting(into, passed_on)
        result = await self._transfer(request, options)
        if isinstance(result, BadResponse) and str(result) == UNDECODABLE and request.method == "GET" and not passed_on:
            options["into"] = None
            result = await self._transfer(request, options, undecoded=True)
            if into is not None and isinstance(result, HttpResponse):
                result = _pass_on(result, into)
        if isinstance(result, HttpResponse):
            return result
        raise result

    async def _transfer(
        self, request: Request, options: FetchOptions, *, undecoded: bool = False
    ) -> HttpResponse | Exception:
        if self._closed:
            raise FetchError("the fetcher was closed", retry=False)
        handle = self._idle.pop() if self._idle else Handle(self._settings, self._bundle)
        future: asyncio.Future[HttpResponse | Exception] = self._loop.create_future()
        try:
            handle.prepare(request, undecoded=undecoded, **options)
            self._multi.add_handle(handle.curl)
        except BaseException:
            handle.curl.close()  # the handle may have options of this request: do not pool it
            raise
        self._busy[handle.curl] = handle, future
        try:
            return await future
        except BaseException:  # cancelled; if this transfer is done, the handle may already serve another
            if not future.done() or future.cancelled():
                self._forget(handle)
            raise

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for handle, future in list(self._busy.values()):
            self._forget(handle)
            if not future.done():
                future.set_result(FetchError("the fetcher was closed", retry=False))
        for pending in (self._timer, self._kick):
            if pending is not None:
                pending.cancel()
        for handle in self._idle:
            handle.curl.close()
        self._idle.clear()
        self._sockets.close()
        self._multi.close()

    def _watch(self, poll: int, fd: int, _multi: object, _data: object) -> None:
        if not self._closed:
            self._sockets.watch(fd, poll)

    def _set_timer(self, timeout_ms: int) -> None:
        """Call libcurl after `timeout_ms`, or never for -1. A timer that is due earlier stays."""
        if self._closed:
            return
        if timeout_ms == 0:  # libcurl must not be called from within its callback
            if self._kick is None:
                self._kick = self._loop.call_soon(self._on_zero_timeout)
            return
        self._deadline = self._loop.time() + timeout_ms / 1000 if timeout_ms > 0 else 0.0
        if timeout_ms > 0 and (self._timer is None or self._fires_at > self._deadline):
            self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._fires_at = self._loop.call_at(self._deadline, self._on_timer), self._deadline

    def _on_zero_timeout(self) -> None:
        self._kick = None
        self._report_events([(pycurl.SOCKET_TIMEOUT, 0)])

    def _on_timer(self) -> None:
        self._timer = None
        if not self._deadline:
            return
        if self._loop.time() < self._deadline:
            self._arm()
        else:
            self._report_events([(pycurl.SOCKET_TIMEOUT, 0)])

    def _report_events(self, ready: list[tuple[int, int]]) -> None:
        socket_action, running = self._multi.socket_action, 0
        for fd, events in ready:
            _, running = socket_action(fd, events)
        if running < len(self._busy):  # otherwise no transfer has ended
            self._read_results()

    def _read_results(self) -> None:
        more = 1
        while more:
            more, good, bad = self._multi.info_read()
            for curl in good:
                self._done(curl, 0, "")
            for curl, code, message in bad:
                self._done(curl, code, message)

    def _done(self, curl: pycurl.Curl, code: int, message: str) -> None:
        handle, future = self._busy[curl]
        if future.cancelled():  # `_transfer` has been cancelled and will forget the handle
            return
        result = handle.result(code)
        if result is None:
            result = error_of(code, message, curl, handle.timeout_s, self._settings.connect_timeout_s)
            if handle.proxied:
                note_proxy_progress(result, curl)
        self._forget(handle)
        future.set_result(result)

    def _forget(self, handle: Handle) -> None:
        if self._busy.pop(handle.curl, None) is None:
            return
        self._multi.remove_handle(handle.curl)
        if len(self._idle) < IDLE_HANDLES_MAX and not self._closed:
            handle.clear()
            self._idle.append(handle)
        else:
            handle.curl.close()


def _noting(into: Into, calls: list[bool]) -> Into:
    def noting(chunk: bytes) -> None:
        calls.append(True)
        into(chunk)

    return noting


def _pass_on(response: HttpResponse, into: Into) -> HttpResponse | Exception:
    body, response.body = response.body, b""
    try:
        into(body)
    except StopDownload as stop:
        return stop if stop.fail else response
    return response
