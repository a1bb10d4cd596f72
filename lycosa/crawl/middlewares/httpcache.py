"""The HTTP cache: serves stored responses and stores new ones, as `http.core.cache_rules` decides.

It is nearest to the fetcher (order 900). A response from the cache has the flag "cached", and a second flag if the host
was contacted: "revalidated" (a 304 confirmed the response) or "stale" (the host failed).

The conditional requests of the engine (`crawl.fetching.validators`) bypass the cache, because a 304 must reach the
engine (exception: `ReplayRules`). If the store fails, the crawl continues without a cache.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from weakref import ref

from lycosa.core.errors import FetchError, IgnoreRequest, StateError
from lycosa.core.headers import Headers
from lycosa.crawl.engine.verdict import Ignored
from lycosa.crawl.fetching.proxying.selector import jar_of
from lycosa.crawl.spiders.response import Response
from lycosa.http.core import cache_rules, model
from lycosa.http.core.cache_rules import CacheAction, CacheDecision, CacheQuery, ReplayRules, Rules, StoredResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Accept, HttpCacheStore
from lycosa.infra.clock import Clock

log = logging.getLogger(__name__)

CACHED = "cached"
REVALIDATED = "revalidated"
STALE = "stale"
NOT_CACHED = "not in the cache"

DONT_CACHE = "dont_cache"


class _Pending(NamedTuple):
    """A stored response while it is revalidated by `request`."""

    request: ref[Request]
    stored: StoredResponse
    decision: CacheDecision


@dataclass(eq=False, repr=False)
class HttpCache:
    """The cache of one spider.

    `defaults` are the header fields sent with every request, by lower-case name: Vary may refer to them. `accept` is
    the body filter of the fetcher. `count` is called with the name of a stat, without "httpcache/". `owner` is the name
    of the spider, if other spiders use the same store.
    """

    store: HttpCacheStore
    rules: Rules
    clock: Clock
    count: Callable[[str], None]
    defaults: Mapping[str, str] = field(kw_only=True, default_factory=dict)
    accept: Accept | None = field(kw_only=True, default=None)
    owner: str = field(kw_only=True, default="")

    _disabled: bool = field(init=False, default=False)
    _pending: dict[int, _Pending] = field(init=False, default_factory=dict)
    """By the id of the request. An entry is removed when its request object is freed."""

    async def process_request(self, request: Request) -> Response | Ignored | None:
        query = self._query(request)
        if self._bypasses(request, query):
            return None
        stored = await self._get(self._key(query, request))
        if stored is None:
            self.count("miss")
        now = self.clock.now()
        decision = self.rules.decide(query, stored, now)
        if decision.action is CacheAction.SERVE and stored is not None:
            self.count("hit")
            return self._serve(request, stored, now)
        if decision.action is CacheAction.NOT_CACHED:
            self.count("ignore")
            why = IgnoreRequest(f"{NOT_CACHED}: {request.url}")
            return Ignored(NOT_CACHED, contacted=False, cause=why)
        if stored is not None:
            self._add_pending(request, stored, decision)
            if decision.conditions:
                request.headers.update(decision.conditions)
        return None

    async def process_response(self, request: Request, response: Response) -> Response:
        """After a 304, or an error if the rules allow it, return the cached response."""
        if CACHED in response.flags:
            return response
        pending = self._take_pending(request)
        if response.raw.refused:  # the response depends on the proxy, so it is not cached
            return response
        query = self._query(request)
        if request.get_meta(DONT_CACHE) or not self.rules.applies_to(query):
            await self._invalidate(query, request, response.raw)
            return response
        now = self.clock.now()
        if pending is not None and response.status == 304 and pending.decision.conditions:
            self.count("revalidate")
            fresh = cache_rules.freshen(pending.stored, response.raw, now)
            await self._put(self._key(query, request), fresh)
            return self._serve(request, fresh, now, response.raw, REVALIDATED)
        if pending is not None and response.status in cache_rules.FAILED and pending.decision.serve_on_error:
            self.count("errorrecovery")
            return self._serve(request, pending.stored, now, response.raw, STALE)
        self.count("firsthand" if pending is None else "invalidate")
        await self._store_if_allowed(query, request, response.raw, now, replaces=pending is not None)
        return response

    def process_exception(self, request: Request, exception: Exception) -> Response | None:
        pending = self._take_pending(request)
        if pending is None or not pending.decision.serve_on_error:
            return None
        if not isinstance(exception, FetchError) or not exception.retry:
            return None
        self.count("errorrecovery")
        return self._serve(request, pending.stored, self.clock.now(), None, STALE)

    def _bypasses(self, request: Request, query: CacheQuery) -> bool:
        if self._disabled or request.get_meta(DONT_CACHE) or not self.rules.applies_to(query):
            return True
        is_refetch = request.record is not None and request.record.validators is not None
        return is_refetch and not isinstance(self.rules, ReplayRules)

    def _query(self, request: Request) -> CacheQuery:
        if isinstance(self.rules, ReplayRules):  # ignores headers, because tokens in them differ from run to run
            return CacheQuery(request.method, request.url)
        fields = {name.lower(): value for name, value in request.headers.items()} if not request.is_plain else {}
        return CacheQuery(request.method, request.url, {**self.defaults, **fields})

    async def _store_if_allowed(
        self, query: CacheQuery, request: Request, raw: model.HttpResponse, now: float, *, replaces: bool
    ) -> None:
        if self.rules.storable(query, raw, now):
            self.count("store")
            await self._put(self._key(query, request), cache_rules.to_stored(query, raw, now))
            return
        self.count("uncacheable")
        if replaces and raw.status < 500 and raw.status not in cache_rules.PARTIAL:  # the stored response is outdated
            await self._delete(self._key(query, request))

    async def _invalidate(self, query: CacheQuery, request: Request, raw: model.HttpResponse) -> None:
        # A method that is not safe may have changed the resource (RFC 9111 §4.4).
        for url in cache_rules.urls_to_invalidate(query, raw):
            for method in ("GET", "HEAD"):
                await self._delete(self._key(query._replace(method=method, url=url), request, body=b""))

    def _serve(
        self,
        request: Request,
        stored: StoredResponse,
        now: float,
        latest: model.HttpResponse | None = None,
        *flags: str,
    ) -> Response:
        """Return the stored response, with the cookies of the host's new response `latest`."""
        headers = cache_rules.headers_to_serve(stored, now)
        if latest is not None and "set-cookie" in latest.headers:
            cookies = (("set-cookie", value) for value in latest.headers.getlist("set-cookie"))
            headers = Headers.of([*headers.items(), *cookies])
        raw = model.HttpResponse(
            stored.url, stored.status, headers, stored.body, ip=stored.ip, http_version=stored.http_version
        )
        if latest is not None:
            raw.timings, raw.size_bytes = latest.timings, latest.size_bytes
        # The crawl that stored the body may have accepted content types that this crawl does not.
        raw.skipped = self.accept is not None and not self.accept(raw.status, headers)
        response = Response.of(raw, request, stored.received_at)
        response.flags = [CACHED, *flags]
        return response

    def _key(self, query: CacheQuery, request: Request, body: bytes | None = None) -> str:
        """Return the key of a request. It contains the cookie jar.

        If the request has cookies, the key also contains the owner, except with `ReplayRules`.
        """
        jar = jar_of(request)
        jar = "" if jar is None else str(jar)
        if self.owner and request.has_header("Cookie") and not isinstance(self.rules, ReplayRules):
            jar = f"{jar} of {self.owner}"
        return cache_rules.cache_key(query, request.body if body is None else body, jar)

    async def _get(self, key: str) -> StoredResponse | None:
        try:
            return await self.store.get(key)
        except StateError as error:
            self.count("retrieve_error")
            self._disable(error)
            return None

    async def _put(self, key: str, stored: StoredResponse) -> None:
        if not self._disabled:
            try:
                await self.store.put(key, stored)
            except StateError as error:
                self._disable(error)

    async def _delete(self, key: str) -> None:
        if not self._disabled:
            try:
                await self.store.delete(key)
            except StateError as error:
                self._disable(error)

    def _disable(self, error: StateError) -> None:
        if not self._disabled:
            log.warning("the HTTP cache is no longer used: %s", error)
        self._disabled = True

    def _add_pending(self, request: Request, stored: StoredResponse, decision: CacheDecision) -> None:
        number = id(request)
        # The weak reference removes the entry of a request that never gets a response, because it was replaced.
        self._pending[number] = _Pending(ref(request, lambda _: self._pending.pop(number, None)), stored, decision)

    def _take_pending(self, request: Request) -> _Pending | None:
        """Remove and return the entry of a request. Remove the conditions that were added to the request, too."""
        pending = self._pending.pop(id(request), None)
        if pending is not None:
            for name in pending.decision.conditions:
                del request.headers[name]
        return pending
