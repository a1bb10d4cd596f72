"""Answers from the HTTP cache what it may answer, keeps what may be kept. `http.core.cache_rules` decides, this file
acts.

Nearest to the fetcher (order 900). A response from the cache has the flag "cached". Where the host was asked all the
same, it has one more: "revalidated" (a 304 confirmed it) or "stale" (the host failed, the kept response stands in).

A request that the engine makes conditional by itself, because its page was fetched before
(`crawl.fetching.validators`), is none of a private cache's business: a 304 must reach the engine. A cache that cannot
be used is told once, and left out: a crawl without one is right, too.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple
from weakref import ref

from lycosa.core.errors import FetchError, IgnoreRequest, StateError
from lycosa.core.headers import Headers
from lycosa.crawl.engine.verdict import Ignored
from lycosa.crawl.fetching.proxying.selector import jar_of
from lycosa.crawl.spiders.response import Response
from lycosa.http.core import cache_rules, model
from lycosa.http.core.cache_rules import FAILED, PARTIAL, Action, Asked, Decision, ReplayRules, Rules, StoredResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, HttpCacheStore
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

CACHED = "cached"
REVALIDATED = "revalidated"
STALE = "stale"
NOT_CACHED = "not in the cache"

DONT_CACHE = "dont_cache"


class _Held(NamedTuple):
    """A stored response, and what was decided, while its host is asked about it; `request` is the one that asks."""

    request: ref[Request]
    stored: StoredResponse
    decision: Decision


class HttpCache:
    """A cache for one spider.

    `usual` are the header fields that go with every request, by lower-case names: Vary may name them. `accept` says
    which bodies the crawl wants, as it does to the fetcher. `count` is called with the name of each thing to count,
    without its "httpcache/". `owner` is the name of the spider: others may use the same store.
    """

    def __init__(
        self,
        store: HttpCacheStore,
        rules: Rules,
        clock: Clock,
        count: Callable[[str], None],
        *,
        usual: Mapping[str, str] | None = None,
        accept: Accept | None = None,
        owner: str = "",
    ) -> None:
        self._store = store
        self._rules = rules
        self._clock = clock
        self._count = count
        self._usual = dict(usual or {})
        self._accept = accept
        self._owner = owner
        self._broken = False
        self._held: dict[int, _Held] = {}
        """By the id of the request, as long as there is that request."""

    async def process_request(self, request: Request) -> Response | Ignored | None:
        """Return what is kept, if it may be served; else make the request conditional where that can help."""
        asked = self._asked(request)
        if self._passes(request, asked):
            return None
        stored = await self._get(self._key(asked, request))
        if stored is None:
            self._count("miss")
        now = self._clock.now()
        decision = self._rules.decide(asked, stored, now)
        if decision.action is Action.SERVE and stored is not None:
            self._count("hit")
            return self._served(request, stored, now)
        if decision.action is Action.NOT_CACHED:
            self._count("ignore")
            why = IgnoreRequest(f"{NOT_CACHED}: {request.url}")
            return Ignored(NOT_CACHED, contacted=False, cause=why)
        if stored is not None:
            self._hold(request, stored, decision)
            if decision.conditions:
                request.headers.update(decision.conditions)
        return None

    async def process_response(self, request: Request, response: Response) -> Response:
        """Keep the response if that is allowed; return the one that is kept if the host says that it still holds."""
        if CACHED in response.flags:
            return response
        held = self._released(request)
        if response.raw.refused:  # of those who ask through such proxies, and of nobody else
            return response
        asked = self._asked(request)
        if request.asked(DONT_CACHE) or not self._rules.concerns(asked):
            await self._invalidate(asked, request, response.raw)
            return response
        now = self._clock.now()
        if held is not None and response.status == 304 and held.decision.conditions:
            self._count("revalidate")
            fresh = cache_rules.freshened(held.stored, response.raw, now)
            await self._put(self._key(asked, request), fresh)
            return self._served(request, fresh, now, response.raw, REVALIDATED)
        if held is not None and response.status in FAILED and held.decision.stand_in:
            self._count("errorrecovery")
            return self._served(request, held.stored, now, response.raw, STALE)
        self._count("firsthand" if held is None else "invalidate")
        await self._keep(asked, request, response.raw, now, replaces=held is not None)
        return response

    def process_exception(self, request: Request, exception: Exception) -> Response | None:
        """Return what is kept, stale as it is, if it may stand in for a host that cannot be reached."""
        held = self._released(request)
        if held is None or not held.decision.stand_in or not isinstance(exception, FetchError) or not exception.retry:
            return None
        self._count("errorrecovery")
        return self._served(request, held.stored, self._clock.now(), None, STALE)

    def _passes(self, request: Request, asked: Asked) -> bool:
        if self._broken or request.asked(DONT_CACHE) or not self._rules.concerns(asked):
            return True
        again = request.record is not None and request.record.validators is not None
        return again and not isinstance(self._rules, ReplayRules)

    def _asked(self, request: Request) -> Asked:
        if isinstance(self._rules, ReplayRules):  # headers do not matter: a token is another one in each run
            return Asked(request.method, request.url)
        fields = {name.lower(): value for name, value in request.headers.items()} if not request.is_plain else {}
        return Asked(request.method, request.url, {**self._usual, **fields})

    async def _keep(self, asked: Asked, request: Request, raw: model.Response, now: float, *, replaces: bool) -> None:
        if self._rules.storable(asked, raw, now):
            self._count("store")
            await self._put(self._key(asked, request), cache_rules.stored_of(asked, raw, now))
            return
        self._count("uncacheable")
        if replaces and raw.status < 500 and raw.status not in PARTIAL:  # the host answers otherwise now
            await self._delete(self._key(asked, request))

    async def _invalidate(self, asked: Asked, request: Request, raw: model.Response) -> None:
        for url in cache_rules.invalidated(asked, raw):
            for method in ("GET", "HEAD"):
                await self._delete(self._key(asked._replace(method=method, url=url), request, body=b""))

    def _served(
        self, request: Request, stored: StoredResponse, now: float, latest: model.Response | None = None, *flags: str
    ) -> Response:
        """Return the stored response; `latest` is what the host has just said, with its cookies."""
        headers = cache_rules.served(stored, now)
        if latest is not None and "set-cookie" in latest.headers:
            cookies = (("set-cookie", value) for value in latest.headers.getlist("set-cookie"))
            headers = Headers.of([*headers.items(), *cookies])
        raw = model.Response(
            stored.url, stored.status, headers, stored.body, ip=stored.ip, http_version=stored.http_version
        )
        if latest is not None:
            raw.timings, raw.size_bytes = latest.timings, latest.size_bytes
        raw.skipped = self._accept is not None and not self._accept(raw.status, headers)
        response = Response.of(raw, request, stored.received_at)
        response.flags = [CACHED, *flags]
        return response

    def _key(self, asked: Asked, request: Request, body: bytes | None = None) -> str:
        """Return what a response is kept under: what one spider is shown for its cookies is for no other one."""
        jar = jar_of(request)
        jar = "" if jar is None else str(jar)
        if self._owner and request.has_header("Cookie") and not isinstance(self._rules, ReplayRules):
            jar = f"{jar} of {self._owner}"
        return cache_rules.key_of(asked, request.body if body is None else body, jar)

    async def _get(self, key: str) -> StoredResponse | None:
        try:
            return await self._store.get(key)
        except StateError as error:
            self._count("retrieve_error")
            self._give_up(error)
            return None

    async def _put(self, key: str, stored: StoredResponse) -> None:
        if not self._broken:
            try:
                await self._store.put(key, stored)
            except StateError as error:
                self._give_up(error)

    async def _delete(self, key: str) -> None:
        if not self._broken:
            try:
                await self._store.delete(key)
            except StateError as error:
                self._give_up(error)

    def _give_up(self, error: StateError) -> None:
        if not self._broken:
            log.warning("the crawl goes on without its HTTP cache: %s", error)
        self._broken = True

    def _hold(self, request: Request, stored: StoredResponse, decision: Decision) -> None:
        number = id(request)
        # Some are never answered: a middleware nearer to the fetcher may put something else in their place.
        self._held[number] = _Held(ref(request, lambda _: self._held.pop(number, None)), stored, decision)

    def _released(self, request: Request) -> _Held | None:
        """Return what was held while the host was asked, and leave the request as its spider made it."""
        held = self._held.pop(id(request), None)
        if held is not None:
            for name in held.decision.conditions:
                del request.headers[name]
        return held
