"""A fetcher whose transfers go through proxies of a pool: each has one while it lasts, and says what came of it.

What a proxy failed at, or was banned for, is no answer: the request goes back to its place in line (`NoProxyYet`),
where the pace of its host is kept, and is sent through another proxy. After so many of them it counts: a ban is
returned with the reason in `HttpResponse.refused`, a failure is raised.

A transfer for which a proxy is named, by the caller or by `proxy` in the request's meta, goes through that one, or
through none.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any

from lycosa.core.errors import FetchError, NoProxyYet, PrivateAddress
from lycosa.core.url import redirect_target
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.proxying.selector import ProxySelector, selector_of
from lycosa.crawl.fetching.proxying.sessions import SessionProxies
from lycosa.crawl.fetching.wrapper import FetcherWrapper
from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.ports import Fetcher, Into
from lycosa.infra.clock import Clock
from lycosa.proxies.core.attempts import FAILED
from lycosa.proxies.core.outcomes.outcome import Outcome, OutcomeRule, judge, judge_error
from lycosa.proxies.ports import ProxyLease

WITHOUT_BODY = frozenset({204, 304})
UNSAID = object()
NOTHING: Mapping[str, str] = {}


class PooledFetcher(FetcherWrapper):
    """See the module; for one spider. `afresh(request)` gives a request cookies of a new session."""

    def __init__(
        self, fetcher: Fetcher, leaser: ProxyLeaser, sessions: SessionProxies, stats: StatsCollector, clock: Clock
    ) -> None:
        super().__init__(fetcher)
        self._leaser = leaser
        self._sessions = sessions
        self._count = stats.inc_value
        self._clock = clock
        self.afresh: Callable[[Request], None] = _as_it_is

    async def fetch(
        self, request: Request, *, address: str = "", into: Into | None = None, proxy: str | None = None, **options: Any
    ) -> HttpResponse:
        """Do one transfer. See the port. Raises `NoProxyYet`, `CloseSpider`, `BadSpider`, too."""
        if proxy is not None or request.get_meta("proxy", UNSAID) is not UNSAID:
            return await self._fetcher.fetch(request, address=address, into=into, proxy=proxy, **options)
        wanted, key = selector_of(request), _key(request)
        lease = await self._lent(wanted, key)
        outcome: Outcome | None = None
        try:
            self._same_session(request, wanted, lease)
            found = await self._transferred(request, lease.proxy.url, options, into)
            outcome = self._judged(request, wanted, found, is_read=into is None)
            told = None if outcome is None else self._leaser.attempts.judged(key, outcome)
        except BaseException:
            await self._leaser.give_back(lease, ())
            raise
        if not await self._leaser.give_back(lease, () if told is None else (told,)):
            self._count("proxy/leases_lost")
        return self._decided(key, lease, found, outcome)

    async def _lent(self, wanted: ProxySelector, key: Hashable) -> ProxyLease:
        try:
            lease = await self._leaser.lend(wanted, self._leaser.attempts.avoided(key))
        except NoProxyYet:
            self._count("proxy/waits")
            raise
        self._count("proxy/leases")
        return lease

    async def _transferred(
        self, request: Request, proxy: str, options: dict[str, Any], into: Into | None
    ) -> HttpResponse | FetchError:
        try:
            return await self._fetcher.fetch(request, into=into, proxy=proxy, **options)
        except FetchError as error:
            return error

    def _same_session(self, request: Request, wanted: ProxySelector, lease: ProxyLease) -> None:
        if wanted.session and self._sessions.changes(wanted.target, wanted.session, lease.proxy.key):
            self._count("proxy/sessions_rebound")
            self.afresh(request)

    def _judged(
        self, request: Request, wanted: ProxySelector, found: HttpResponse | FetchError, *, is_read: bool
    ) -> Outcome | None:
        """Return what came of it, None when nothing was sent."""
        if isinstance(found, FetchError):
            return None if isinstance(found, PrivateAddress) else judge_error(found)
        is_read = is_read and not found.skipped and request.method != "HEAD" and found.status not in WITHOUT_BODY
        rules = [rule for rule in self._leaser.rules_of(wanted.target) if is_read or not _reads(rule)]
        location = redirect_target(request.url, found.headers.get("location")) if 300 <= found.status < 400 else None
        return judge(
            found.status,
            _waits(found),
            found.body,
            locations=[request.url, *([location] if location else [])],
            rules=rules,
            now=self._clock.now(),
            latency_s=found.latency_s,
        )

    def _decided(
        self, key: Hashable, lease: ProxyLease, found: HttpResponse | FetchError, outcome: Outcome | None
    ) -> HttpResponse:
        if outcome is not None:
            self._count(f"proxy/outcomes/{outcome.blame}")
        if outcome is None or outcome.blame not in FAILED:
            self._leaser.attempts.over(key)
            if outcome is not None:
                self._leaser.worked()
            return _or_raise(found)
        self._count(f"proxy/reason_count/{outcome.reason}")
        many = self._leaser.attempts.failed(key, lease.proxy.key, outcome)
        if not many:
            self._count("proxy/sent_again")
            raise NoProxyYet(f"through {lease.proxy.name}: {outcome.reason}", self._clock.now())
        self._count("proxy/given_up")
        why = f"through {many} {'proxies' if many > 1 else 'proxy'}: {outcome.reason}"
        if isinstance(found, HttpResponse):
            return replace(found, refused=why)
        raise FetchError(why, retry=found.retry) from found


def _key(request: Request) -> Hashable:
    record = request.record
    return request.url if record is None else (record.segment, record.fingerprint)


def _waits(found: HttpResponse) -> Mapping[str, str]:
    """Return the field that is looked at, if it may be there: others are not even parsed."""
    headers = found.headers
    return {"retry-after": headers.get("retry-after")} if headers.may_have(b"retry-after") else NOTHING


def _reads(rule: OutcomeRule) -> bool:
    return bool(rule.body or rule.shorter is not None or rule.longer is not None)


def _or_raise(found: HttpResponse | FetchError) -> HttpResponse:
    if isinstance(found, FetchError):
        raise found
    return found


def _as_it_is(_request: Request) -> None:
    """Without cookies there is nothing to change."""
