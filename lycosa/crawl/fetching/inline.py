"""Inline fetches: requests that a callback or pipeline awaits with `await self.fetch(request)`.

They pass the downloader middlewares, wait for a slot of their host, are retried, and follow redirects. They are not
stored: after a crash they are repeated with their page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from lycosa.core.errors import BadSpider, FetchError, IgnoreRequest, NoProxyYet
from lycosa.crawl.engine.records import Naming, replacement_record, to_record
from lycosa.crawl.engine.verdict import Deferred, Failed, Replace, exception_of
from lycosa.crawl.fetching.claims import claim_host
from lycosa.crawl.fetching.download import Downloader, DownloadResult
from lycosa.crawl.fetching.guard import CurrentWork, current_work, is_guarded
from lycosa.crawl.fetching.redirects import REPLACEMENTS_MAX
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import VisitFrontier
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock

WAIT_MAX_S = 600.0
"""Maximum seconds that an inline fetch waits for its retry, because the waiting page must keep its lease.

A retry that is due later is dropped.
"""


class BodyWriter(Protocol):
    """Receives the body of a response piece by piece."""

    def __call__(self, piece: bytes, /) -> None: ...

    def restart(self) -> None:
        """Discard all pieces. Called at the start of each transfer, including the first one."""


@dataclass(eq=False, repr=False)
class InlineFetcher:
    """The inline fetches of one spider. `wake` is called when the frontier may have leases again."""

    frontier: VisitFrontier
    downloader: Downloader
    gate: RobotsGate | None
    spider: object
    naming: Naming
    clock: Clock
    resolve: Callable[[str], Awaitable[None]]

    def __post_init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None

    async def fetch(self, request: Request | str, into: BodyWriter | None = None) -> Response:
        """Return the response, whatever its status.

        `into` receives the body piece by piece; the response then has no body. Raises `FetchError`, `IgnoreRequest`, or
        the exception of a middleware.
        """
        if current_work.get() is not None:
            return await self._follow(self._prepare(request), into)
        token = current_work.set(CurrentWork(None))
        try:
            return await self._follow(self._prepare(request), into)
        finally:
            current_work.reset(token)

    async def _follow(self, request: Request, into: BodyWriter | None) -> Response:
        for _ in range(REPLACEMENTS_MAX + 1):
            result = await self._fetch_with_retries(request, into)
            if isinstance(result, Response):
                return result
            if isinstance(result, Failed) and isinstance(result.cause, Response):
                return result.cause  # the response of the last try has an error status
            if not isinstance(result, Replace):
                raise _mark_inline(exception_of(result))
            record = replacement_record(request.record, result.request, self.spider, self.naming, guarded=is_guarded())
            request = result.request
            request.record = record
        raise FetchError(f"{request.url}: replaced more than {REPLACEMENTS_MAX} times", retry=False)

    def _prepare(self, request: Request | str) -> Request:
        if isinstance(request, str):
            request = Request(request)
        if not isinstance(request, Request):
            raise BadSpider(f"fetch takes a URL or a Request: {type(request).__name__} is neither")
        lease = _lease()
        parent = lease.record if lease is not None else None
        copy = request.copy()
        # The request is not stored, so its callbacks need not be methods.
        plain = request.replace(callback=None, errback=None)
        record = to_record(plain, self.spider, parent, self.naming, guarded=is_guarded())
        if parent is not None:  # not a link: the depth of the page, but not 0, which is always in scope
            record = msgspec.structs.replace(record, depth=max(1, parent.depth))
        copy.record = record
        copy.url = copy.record.url
        copy.params = None
        return copy

    async def _fetch_with_retries(self, request: Request, into: BodyWriter | None) -> DownloadResult:
        while True:
            try:
                result = await self._fetch_once(request, into)
            except NoProxyYet as later:  # raised while fetching robots.txt
                result = Deferred(later.until)
            if isinstance(result, Deferred):
                await self.frontier.block_host(request.record.host, result.until)
                continue
            if not isinstance(result, Failed) or result.retry_at is None:
                return result
            if result.block_until > self.clock.now():
                await self.frontier.block_host(request.record.host, result.block_until)
            wait_s = result.retry_at - self.clock.now()
            if wait_s > WAIT_MAX_S:
                return result._replace(retry_at=None)
            await asyncio.sleep(max(wait_s, 0.0))
            request = request.copy()
            request.record = msgspec.structs.replace(request.record, attempts=request.record.attempts + 1)

    async def _fetch_once(self, request: Request, into: BodyWriter | None) -> DownloadResult:
        host = request.record.host
        if self.gate is not None and not request.get_meta("dont_obey_robotstxt"):
            await self.gate.fetch_if_unknown(host, self._with_claim, guarded=request.record.guarded)
        result: DownloadResult = await self._with_claim(host, lambda address: self._download(request, address, into))
        return result

    async def _download(self, request: Request, address: str, into: BodyWriter | None) -> DownloadResult:
        if into is not None:
            into.restart()
        return await self.downloader.download(request, address, into)

    async def _with_claim(self, host: str, transfer: Callable[[str], Awaitable[Any]]) -> Any:
        claim = claim_host(host, self.frontier, self.clock, _lease(), self.resolve, self.wake)
        async with claim as address:
            return await transfer(address)


def _lease() -> Lease | None:
    work = current_work.get()
    return work.lease if work is not None else None


def _mark_inline(error: BaseException) -> BaseException:
    if isinstance(error, IgnoreRequest):
        error.inline = True
    return error
