"""A request that a callback or pipeline waits for: `await self.fetch(request)`.

It goes through the same downloader middlewares as a page, waits for a turn of its host, is tried again and follows
redirects; but it is no record: the frontier does not remember it, and a crash takes it back with its page.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import msgspec

from lycosa.core.errors import BadSpider, FetchError, IgnoreRequest, NoProxyYet
from lycosa.crawl.engine.records import Naming, in_place_of, to_record
from lycosa.crawl.engine.verdict import Failed, Instead, NotYet, exception_of
from lycosa.crawl.fetching.claims import turn_of
from lycosa.crawl.fetching.download import Downloader, Found
from lycosa.crawl.fetching.guard import Work, is_guarded, working
from lycosa.crawl.fetching.redirects import HOPS_MAX
from lycosa.crawl.fetching.robots import RobotsGate
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import VisitFrontier
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock

WAIT_MAX_S = 600.0
"""A retry that would have to wait longer is not waited for: the page that asked has a lease to keep."""


class BodyWriter(Protocol):
    """Takes the body of a response as it comes."""

    def __call__(self, piece: bytes, /) -> None:
        """Take the next piece."""
        ...

    def restart(self) -> None:
        """Forget all pieces: a transfer begins, the first one or another."""
        ...


class Inline:
    """Fetches for the callbacks of one spider; `wake` is called when the frontier may have something to lend again."""

    def __init__(
        self,
        frontier: VisitFrontier,
        downloader: Downloader,
        gate: RobotsGate | None,
        spider: object,
        naming: Naming,
        clock: Clock,
        find: Callable[[str], Awaitable[None]],
    ) -> None:
        self._frontier = frontier
        self._downloader = downloader
        self._gate = gate
        self._spider = spider
        self._naming = naming
        self._clock = clock
        self._find = find
        self.wake: Callable[[], None] = _nobody

    async def fetch(self, request: Request | str, into: BodyWriter | None = None) -> Response:
        """Return the response, whatever its status.

        With `into` the pieces of the body go there as they come, and the response has none. Raises `FetchError`,
        `IgnoreRequest`, or what a middleware raised.
        """
        if working.get() is not None:
            return await self._fetched(self._prepared(request), into)
        token = working.set(Work(None))
        try:
            return await self._fetched(self._prepared(request), into)
        finally:
            working.reset(token)

    async def _fetched(self, request: Request, into: BodyWriter | None) -> Response:
        for _ in range(HOPS_MAX + 1):
            found = await self._tried(request, into)
            if isinstance(found, Response):
                return found
            if isinstance(found, Failed) and isinstance(found.cause, Response):
                return found.cause  # a status that was still there after the last try
            if not isinstance(found, Instead):
                raise _of_inline(exception_of(found))
            record = in_place_of(request.record, found.request, self._spider, self._naming, guarded=is_guarded())
            request = found.request
            request.record = record
        raise FetchError(f"{request.url}: replaced more than {HOPS_MAX} times", retry=False)

    def _prepared(self, request: Request | str) -> Request:
        if isinstance(request, str):
            request = Request(request)
        if not isinstance(request, Request):
            raise BadSpider(f"fetch takes a URL or a Request: {type(request).__name__} is neither")
        lease = _lease()
        parent = lease.record if lease is not None else None
        prepared = request.copy()
        plain = request.replace(callback=None, errback=None)  # nobody calls it back: they need not be found again
        record = to_record(plain, self._spider, parent, self._naming, guarded=is_guarded())
        if parent is not None:  # it is part of that page, not a link of it
            record = msgspec.structs.replace(record, depth=max(1, parent.depth))
        prepared.record = record
        prepared.url = prepared.record.url
        prepared.params = None
        return prepared

    async def _tried(self, request: Request, into: BodyWriter | None) -> Found:
        """Return what comes of the request when it was tried as often as it may be."""
        while True:
            try:
                found = await self._once(request, into)
            except NoProxyYet as later:  # for robots.txt
                found = NotYet(later.until)
            if isinstance(found, NotYet):
                await self._frontier.block_host(request.record.host, found.until)
                continue
            if not isinstance(found, Failed) or found.retry_at is None:
                return found
            if found.block_until > self._clock.now():
                await self._frontier.block_host(request.record.host, found.block_until)
            wait_s = found.retry_at - self._clock.now()
            if wait_s > WAIT_MAX_S:
                return found._replace(retry_at=None)
            await asyncio.sleep(max(wait_s, 0.0))
            request = request.copy()
            request.record = msgspec.structs.replace(request.record, attempts=request.record.attempts + 1)

    async def _once(self, request: Request, into: BodyWriter | None) -> Found:
        host = request.record.host
        if self._gate is not None and not request.asked("dont_obey_robotstxt"):
            await self._gate.ask_if_unknown(host, self._in_turn, guarded=request.record.guarded)
        found: Found = await self._in_turn(host, lambda address: self._download(request, address, into))
        return found

    async def _download(self, request: Request, address: str, into: BodyWriter | None) -> Found:
        if into is not None:
            into.restart()
        return await self._downloader.download(request, address, into)

    async def _in_turn(self, host: str, transfer: Callable[[str], Awaitable[Any]]) -> Any:
        turn = turn_of(host, self._frontier, self._clock, _lease(), self._find, self.wake)
        async with turn as address:
            return await transfer(address)


def _lease() -> Lease | None:
    """Return the lease of the page that the running task works on."""
    work = working.get()
    return work.lease if work is not None else None


def _of_inline(error: BaseException) -> BaseException:
    if isinstance(error, IgnoreRequest):
        error.inline = True
    return error


def _nobody() -> None:
    """Nobody waits yet."""
