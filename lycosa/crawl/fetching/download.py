"""One download: the request goes out through the downloader middlewares, what came back goes in through them.

    process_request of each, upwards    a Response, Request, item or verdict ends the way out
    the fetcher                         a Response, or an exception
    process_exception, downwards        for what was raised on the way out or by the fetcher
    process_response, downwards         for every Response, wherever it came from

What comes out is a `Response` or a verdict (`engine/verdict.py`); what nobody wanted to handle is a verdict too.
What was given up (`Failed`, never again) still goes to those who come later: they may have something in its place.
`RetryRequest`, `CloseSpider` and `NoProxyYet` are orders, not failures: no `process_exception` sees them. The whole of
it, cell by cell, is a table in `docs/middlewares.md`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeGuard

from lycosa.core.errors import (
    BadMiddleware,
    CloseSpider,
    FetchError,
    IgnoreRequest,
    LycosaError,
    NoProxyYet,
    RetryRequest,
    StateError,
    StopDownload,
)
from lycosa.core.headers import Headers
from lycosa.crawl.diagnostics import blame
from lycosa.crawl.diagnostics.tracebacks import Tracebacks
from lycosa.crawl.engine.cancellation import is_being_cancelled
from lycosa.crawl.engine.records import host_of
from lycosa.crawl.engine.verdict import (
    VERDICTS,
    Answered,
    Closing,
    Failed,
    Ignored,
    Instead,
    NotYet,
    Unchanged,
    Verdict,
    storable,
    without_contact,
)
from lycosa.crawl.fetching.guard import OPEN, Guard
from lycosa.crawl.fetching.request_delays import Resting
from lycosa.crawl.fetching.retry import Retrying
from lycosa.crawl.fetching.validators import conditional, confirmed
from lycosa.crawl.middlewares.chain import DownloaderChain, Method
from lycosa.crawl.spiders.response import Response
from lycosa.crawl.spiders.results import is_item
from lycosa.http.core import model
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, Fetcher, Into
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

Found = Response | Verdict
Rest = Callable[[str, float], Awaitable[None]]


class Downloader:
    """Downloads for one spider. `headers` go with every request, by the fetcher; `accept` sees the headers first.

    `rest(host, until)` lets a host rest (`download_delay` in meta).
    """

    def __init__(
        self,
        fetcher: Fetcher,
        chain: DownloaderChain,
        retrying: Retrying,
        clock: Clock,
        accept: Accept | None = None,
        headers: Mapping[str, str] | None = None,
        rest: Rest | None = None,
        guard: Guard = OPEN,
    ) -> None:
        self._fetcher = fetcher
        self._chain = chain
        self._retrying = retrying
        self._clock = clock
        self._accept = accept
        self._headers = headers or {}
        self._rest = rest
        self._guard = guard
        self._tracebacks = Tracebacks()
        self._resting = Resting()

    async def download(self, request: Request, address: str = "", into: Into | None = None) -> Found:
        """Return the response, or what becomes of the request without one. Raises only what cancels the task.

        With `into` the body goes there as it comes, and the response has none.
        """
        asked = False
        try:
            if until := self._resting.begin(request, self._clock.now):
                return NotYet(until)
            try:
                found = await self._out(request)
                if found is None:
                    asked = True
                    found = await self._fetched(request, address, into)
            except (RetryRequest, CloseSpider, NoProxyYet, StateError):
                raise
            except Exception as error:  # noqa: BLE001  it goes to the middlewares, or becomes a verdict
                if isinstance(error, StopDownload):  # it has a response, too
                    self._guard.has_read(request.record, "")
                found = await self._saved(request, error)
            if isinstance(found, Response):
                found.contacted = asked
                self._guard.has_read(request.record, found.raw.ip)
                found = await self._in(request, found)
        except BaseException as error:  # noqa: BLE001  becomes a verdict, or is raised again
            found = self._ended(request, error)
        if asked:
            return found
        if request.asked("download_delay") is not None:
            self._resting.never_mind(request)
        return found if isinstance(found, Response) else without_contact(found)

    async def _out(self, request: Request) -> Found | None:
        for method in self._chain.requests:
            found: Any = method(request)
            if found is not None:
                verdict = await _settled(method, request, found)
                if verdict is not None:
                    return verdict
        return None

    async def _saved(self, request: Request, error: Exception) -> Found:
        """Return what the middlewares make of an exception. Raises it where they make nothing of it."""
        given_up = None
        for method in self._chain.exceptions:
            found: Any = method(request, error)
            if found is not None:
                verdict = await _settled(method, request, found)
                if _is_final(verdict):
                    given_up = given_up or verdict
                elif verdict is not None:
                    return verdict
        if given_up is not None:
            return given_up
        if isinstance(error, FetchError):  # nobody tries again
            return Failed(storable(str(error)), cause=error)
        raise error

    async def _fetched(self, request: Request, address: str, into: Into | None) -> Response | Unchanged:
        record = request.record
        if self._rest is not None and request.asked("download_delay") is not None:
            await self._rest(host_of(request), self._resting.started(request, self._clock.now()))
        asked = request
        if record is not None and record.validators is not None:
            asked = conditional(request, record, self._headers)
        guarded = self._guard.public_only(record)
        accept = self._accept if into is None else None
        raw = await self._fetcher.fetch(asked, accept=accept, address=address, public_only=guarded, into=into)
        if not isinstance(raw, model.Response):
            raise BadMiddleware(f"the fetcher returned {raw!r:.60}: write a model.Response, or raise FetchError")
        now = self._clock.now()
        if asked is not request and raw.status == 304:
            return Unchanged(confirmed(record.validators, raw.headers, now), raw.size_bytes)
        return Response.of(raw, request, now)

    async def _in(self, request: Request, response: Response) -> Found:
        given_up = None
        for method in self._chain.responses:
            found = method(request, response)
            if found is not response:
                verdict = await _settled(method, request, found)
                if verdict is None:
                    raise BadMiddleware(_nonsense(method, None))
                if _is_final(verdict) and verdict.cause is response:
                    given_up = given_up or verdict
                    continue
                if not isinstance(verdict, Response):
                    return verdict if response.contacted else without_contact(verdict)
                if verdict is not response:
                    verdict.contacted = response.contacted
                    response, given_up = verdict, None
        if given_up is not None:
            return given_up
        if response.request is not request and response.request.record is None:
            response.request = request
        return response

    def _ended(self, request: Request, error: BaseException) -> Verdict:
        """Return what becomes of a request on which something was raised. Raises what ends the task, or the crawl."""
        if isinstance(error, RetryRequest):
            return self._retrying.asked_for(request, error)
        if isinstance(error, CloseSpider):
            return Closing(error.reason)
        if isinstance(error, IgnoreRequest):
            return Ignored(storable(str(error)), cause=error)
        if isinstance(error, NoProxyYet):
            return NotYet(error.until)
        of_its_own = isinstance(error, asyncio.CancelledError) and not is_being_cancelled()  # what it awaited
        if isinstance(error, StateError) or not (of_its_own or isinstance(error, (Exception, SystemExit))):
            raise error
        told = isinstance(error, LycosaError)
        shown = None if told else self._tracebacks.of(error)
        where = blame.entered(error, "a middleware")
        log.error("%s failed on %s: %s: %s", where, request.url, type(error).__name__, error, exc_info=shown)
        return Failed(storable(str(error) if told else f"{type(error).__name__} in {where}: {error}"), cause=error)


def _is_final(verdict: Found | None) -> TypeGuard[Failed]:
    """Return whether a request was given up: who comes later may still have something in its place."""
    return isinstance(verdict, Failed) and verdict.retry_at is None


async def _settled(method: Method, request: Request, found: Any) -> Found | None:
    """Return what a middleware returned in one of our words. Raises `BadMiddleware` for nonsense."""
    if hasattr(found, "__await__"):
        found = await found
    if found is None or isinstance(found, (Response, *VERDICTS)):
        return found
    if isinstance(found, Request):
        if found.record is None:
            found.record = request.record
        return Instead(found)
    if is_item(found):
        return Answered(found)
    raise BadMiddleware(_nonsense(method, found))


def _nonsense(method: Method, found: object) -> str:
    return blame.returned(getattr(method, "__qualname__", "a middleware"), found)


def accept_types(types: Sequence[str] | frozenset[str]) -> Accept | None:
    """Return what refuses the bodies of 2xx responses of other content types; None when there are no types."""
    if not types:
        return None

    def accept(status: int, headers: Headers) -> bool:
        if not 200 <= status < 300:
            return True
        kind = headers.get("content-type").partition(";")[0].strip().lower()
        return not kind or kind in types

    return accept


def looks_like_a_page(raw: model.Response) -> bool:
    """Return whether this is no binary file: without a Content-Type, guess as browsers do, by markup near the start."""
    return "content-type" in raw.headers or (b"<" in raw.body[:512] and b"\x00" not in raw.body[:512])
