"""One download: the request goes out through the downloader middlewares, what came back goes in through them.

    process_request of each, upwards    a Response, Request, item or verdict ends the way out
    the fetcher                         a Response, or an exception
    process_exception, downwards        for what was raised on the way out or by the fetcher
    process_response, downwards         for every Response, wherever it came from

What comes out is a `Response` or a verdict (`verdict.py`); what nobody wanted to handle is a verdict too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lycosa.clock import Clock
from lycosa.core import model
from lycosa.core.errors import BadMiddleware, FetchError, IgnoreRequest, LycosaError, RetryRequest, StateError
from lycosa.core.headers import Headers
from lycosa.core.model import Request
from lycosa.engine import blame
from lycosa.engine.middleware import DownloaderChain, Method
from lycosa.engine.response import Response
from lycosa.engine.results import is_item
from lycosa.engine.retrying import Retrying
from lycosa.engine.validators import conditional, confirmed
from lycosa.engine.verdict import VERDICTS, Answered, Failed, Ignored, Instead, Unchanged, Verdict, storable
from lycosa.ports import Accept, Fetcher

log = logging.getLogger(__name__)

Found = Response | Verdict
Into = Callable[[bytes], None]


class Downloader:
    """Downloads for one spider. `headers` go with every request, by the fetcher; `accept` sees the headers first."""

    def __init__(
        self,
        fetcher: Fetcher,
        chain: DownloaderChain,
        retrying: Retrying,
        clock: Clock,
        accept: Accept | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._fetcher = fetcher
        self._chain = chain
        self._retrying = retrying
        self._clock = clock
        self._accept = accept
        self._headers = headers or {}

    async def download(self, request: Request, address: str = "", into: Into | None = None) -> Found:
        """Return the response, or what becomes of the request without one. Raises only what cancels the task.

        With `into` the body goes there as it comes, and the response has none.
        """
        try:
            found = await self._out(request, address, into)
            if isinstance(found, Response):
                found = await self._in(request, found)
        except RetryRequest as asked:
            return self._retrying.asked_for(request, asked)
        except IgnoreRequest as ignored:
            return Ignored(storable(str(ignored)), cause=ignored)
        except StateError:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001  a middleware's own: the page is dead, not the crawl
            return self._broken(request, error)
        except asyncio.CancelledError as error:
            if is_being_cancelled():
                raise
            return self._broken(request, error)  # of a task of its own
        return found

    async def _out(self, request: Request, address: str, into: Into | None) -> Found:
        try:
            for method in self._chain.requests:
                found: Any = method(request)
                if found is not None:
                    verdict = await _settled(method, request, found)
                    if verdict is not None:
                        return verdict
            return await self._fetched(request, address, into)
        except Exception as error:
            for method in self._chain.exceptions:
                found = method(request, error)
                if found is not None:
                    verdict = await _settled(method, request, found)
                    if verdict is not None:
                        return verdict
            if isinstance(error, FetchError):  # nobody tries again
                return Failed(storable(str(error)), cause=error)
            raise

    async def _fetched(self, request: Request, address: str, into: Into | None) -> Response | Unchanged:
        record = request.record
        asked = request
        if record is not None and record.validators is not None:
            asked = conditional(request, record, self._headers)
        if into is None:
            raw = await self._fetcher.fetch(asked, accept=self._accept, address=address)
        else:
            raw = await self._fetcher.fetch(asked, address=address, into=into)
        now = self._clock.now()
        if asked is not request and raw.status == 304:
            return Unchanged(confirmed(record.validators, raw.headers, now), raw.size_bytes)
        return Response.of(raw, request, now)

    async def _in(self, request: Request, response: Response) -> Found:
        for method in self._chain.responses:
            found = method(request, response)
            if found is not response:
                verdict = await _settled(method, request, found)
                if verdict is None:
                    raise BadMiddleware(_nonsense(method, None))
                if not isinstance(verdict, Response):
                    return verdict
                response = verdict
        if response.request is not request and response.request.record is None:
            response.request = request
        return response

    def _broken(self, request: Request, error: BaseException) -> Failed:
        told = isinstance(error, LycosaError)
        log.error("a middleware failed on %s: %s: %s", request.url, type(error).__name__, error, exc_info=not told)
        text = str(error) if told else f"{type(error).__name__} in a middleware: {error}"
        return Failed(storable(text), cause=error)


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


def is_being_cancelled() -> bool:
    """Return whether somebody cancels the task that runs: not one that it waits for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


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
