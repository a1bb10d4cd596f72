"""One download: a request passes the downloader middlewares on its way out, the response on its way back.

    process_request of each, in order     a Response, Request, item or verdict ends this step
    the fetcher                           returns a Response, or raises
    process_exception, in reverse order   for an exception of a process_request or of the fetcher
    process_response, in reverse order    for every Response, whether from the fetcher or a middleware

The result is a `Response` or a verdict (`engine/verdict.py`), even for an exception that no middleware handles. If a
process_exception returns a final `Failed` (one without a retry), or a process_response returns one for its response,
the remaining middlewares are still called, and may return a replacement. `RetryRequest`, `CloseSpider` and `NoProxyYet`
become verdicts without process_exception; `StateError` is raised. All cases: `docs/middlewares.md`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
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
from lycosa.crawl.diagnostics import user_errors
from lycosa.crawl.diagnostics.bug_log import BugLog
from lycosa.crawl.diagnostics.tracebacks import user_function
from lycosa.crawl.engine.cancellation import is_being_cancelled
from lycosa.crawl.engine.records import host_of
from lycosa.crawl.engine.verdict import (
    VERDICTS,
    AnsweredWithItem,
    CloseCrawl,
    Deferred,
    Failed,
    Ignored,
    Replace,
    Unchanged,
    Verdict,
    reason_text,
    without_contact,
)
from lycosa.crawl.fetching.guard import NO_GUARD, PublicOnlyGuard
from lycosa.crawl.fetching.request_delays import RequestDelays
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.validators import make_conditional, update_validators
from lycosa.crawl.items.items import is_item
from lycosa.crawl.middlewares.chain import DownloaderChain, Method
from lycosa.crawl.spiders.response import Response
from lycosa.http.core import model
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, Fetcher, Into
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

DownloadResult = Response | Verdict
BlockHost = Callable[[str, float], Awaitable[None]]


@dataclass(eq=False, repr=False)
class Downloader:
    """Downloads the requests of one spider.

    `accept` decides by status and headers whether the fetcher reads the body. `headers` are those that the fetcher adds
    to every request: if a condition (If-None-Match, ...) is among them, the stored validators are not used.
    `block_host(host, until)` blocks a host in the frontier, for `download_delay` in meta.
    """

    fetcher: Fetcher
    chain: DownloaderChain
    retrying: RetryDecider
    clock: Clock
    accept: Accept | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    block_host: BlockHost | None = None
    guard: PublicOnlyGuard = NO_GUARD
    bugs: BugLog = field(default_factory=BugLog)
    _delays: RequestDelays = field(init=False, default_factory=RequestDelays)

    async def download(self, request: Request, address: str = "", into: Into | None = None) -> DownloadResult:
        """Return the response, or the verdict on the request. Raises only to end the task or the crawl.

        `into` receives the body piece by piece; then the body of the response is empty.
        """
        contacted = False
        try:
            if until := self._delays.reserve(request, self.clock.now):
                return Deferred(until)
            try:
                result = await self._on_request(request)
                if result is None:
                    contacted = True
                    result = await self._fetch(request, address, into)
            except (RetryRequest, CloseSpider, NoProxyYet, StateError):
                raise
            except Exception as error:  # noqa: BLE001  a middleware handles it, or it becomes a verdict
                if isinstance(error, StopDownload):  # a part of the page was read, so it counts as a response
                    self.guard.note_response(request.record, "")
                result = await self._on_exception(request, error)
            if isinstance(result, Response):
                result.contacted = contacted
                self.guard.note_response(request.record, result.raw.ip)
                result = await self._on_response(request, result)
        except BaseException as error:  # noqa: BLE001  becomes a verdict, or is raised again
            result = self._verdict_on(request, error)
        if contacted:
            return result
        if request.get_meta("download_delay") is not None:
            self._delays.cancel(request)
        return result if isinstance(result, Response) else without_contact(result)

    async def _on_request(self, request: Request) -> DownloadResult | None:
        for method in self.chain.requests:
            result: Any = method(request)
            if result is not None:
                verdict = await _to_verdict(method, request, result)
                if verdict is not None:
                    return verdict
        return None

    async def _on_exception(self, request: Request, error: Exception) -> DownloadResult:
        """Return the middlewares' response or verdict for an exception, or raise the exception."""
        failure = None
        for method in self.chain.exceptions:
            found: Any = method(request, error)
            if found is not None:
                verdict = await _to_verdict(method, request, found)
                if _is_final(verdict):
                    failure = failure or verdict
                elif verdict is not None:
                    return verdict
        if failure is not None:
            return failure
        if isinstance(error, FetchError):  # without a retry middleware, the failure is final
            return Failed(reason_text(str(error)), cause=error)
        raise error

    async def _fetch(self, request: Request, address: str, into: Into | None) -> Response | Unchanged:
        record = request.record
        if self.block_host is not None and request.get_meta("download_delay") is not None:
            await self.block_host(host_of(request), self._delays.started(request, self.clock.now()))
        sent = request
        if record is not None and record.validators is not None:
            sent = make_conditional(request, record, self.headers)
        guarded = self.guard.public_only(record)
        accept = self.accept if into is None else None
        raw = await self.fetcher.fetch(sent, accept=accept, address=address, public_only=guarded, into=into)
        if not isinstance(raw, model.HttpResponse):
            raise BadMiddleware(f"the fetcher returned {raw!r:.60}: return a model.HttpResponse, or raise FetchError")
        now = self.clock.now()
        if sent is not request and raw.status == 304:
            return Unchanged(update_validators(record.validators, raw.headers, now), raw.size_bytes)
        return Response.of(raw, request, now)

    async def _on_response(self, request: Request, response: Response) -> DownloadResult:
        failure = None
        for method in self.chain.responses:
            found = method(request, response)
            if found is not response:
                verdict = await _to_verdict(method, request, found)
                if verdict is None:
                    raise BadMiddleware(_wrong_return(method, None))
                # This status gets no further retry. The other middlewares still get the response, and may replace it.
                if _is_final(verdict) and verdict.cause is response:
                    failure = failure or verdict
                    continue
                if not isinstance(verdict, Response):
                    return verdict if response.contacted else without_contact(verdict)
                if verdict is not response:
                    verdict.contacted = response.contacted
                    response, failure = verdict, None
        if failure is not None:
            return failure
        if response.request is not request and response.request.record is None:
            response.request = request  # a middleware made the response with a request that has no record
        return response

    def _verdict_on(self, request: Request, error: BaseException) -> Verdict:
        """Return the verdict on an exception. Raise the exception if it ends the task or the crawl."""
        if isinstance(error, RetryRequest):
            return self.retrying.on_request(request, error)
        if isinstance(error, CloseSpider):
            return CloseCrawl(error.reason)
        if isinstance(error, IgnoreRequest):
            return Ignored(reason_text(str(error)), cause=error)
        if isinstance(error, NoProxyYet):
            return Deferred(error.until)
        # A cancelled task that a middleware awaits is a bug of the middleware, not our cancellation.
        is_inner = isinstance(error, asyncio.CancelledError) and not is_being_cancelled()
        if isinstance(error, StateError) or not (is_inner or isinstance(error, (Exception, SystemExit))):
            raise error
        is_explained = isinstance(error, LycosaError)
        where, kind = user_function(error, "a middleware"), type(error).__name__
        reason = reason_text(str(error) if is_explained else f"{kind} in {where}: {error}")
        self.bugs.record(error, where, f"{kind}: {error}", request.url, reason, with_traceback=not is_explained)
        return Failed(reason, cause=error)


def _is_final(verdict: DownloadResult | None) -> TypeGuard[Failed]:
    return isinstance(verdict, Failed) and verdict.retry_at is None


async def _to_verdict(method: Method, request: Request, found: Any) -> DownloadResult | None:
    """Raises `BadMiddleware` if a middleware returned something invalid."""
    if hasattr(found, "__await__"):
        found = await found
    if found is None or isinstance(found, (Response, *VERDICTS)):
        return found
    if isinstance(found, Request):
        if found.record is None:
            found.record = request.record
        return Replace(found)
    if is_item(found):
        return AnsweredWithItem(found)
    raise BadMiddleware(_wrong_return(method, found))


def _wrong_return(method: Method, found: object) -> str:
    return user_errors.check_returned(getattr(method, "__qualname__", "a middleware"), found)


def content_type_filter(types: Sequence[str] | frozenset[str]) -> Accept | None:
    """Return a filter that skips the bodies of 2xx responses with other content types."""
    if not types:
        return None

    def accept(status: int, headers: Headers) -> bool:
        if not 200 <= status < 300:
            return True
        kind = headers.get("content-type").partition(";")[0].strip().lower()
        return not kind or kind in types

    return accept


def looks_like_page(raw: model.HttpResponse) -> bool:
    """Whether a response may be a page: it has a Content-Type, or its first 512 bytes contain a `<` and no NUL.

    Without a Content-Type, browsers guess in a similar way.
    """
    return "content-type" in raw.headers or (b"<" in raw.body[:512] and b"\x00" not in raw.body[:512])
