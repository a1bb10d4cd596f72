"""A fetcher whose transfers go through proxies of a pool, unless the caller or `proxy` in the request's meta names one.

If the proxy fails or is banned, the request goes back to the queue of its host (`NoProxyYet`) and is retried through
another proxy. After the last try, a ban is returned as a response with the reason in `HttpResponse.refused`, and a
failure is raised.
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

NO_BODY_STATUSES = frozenset({204, 304})
NOT_SET = object()
NO_HEADERS: Mapping[str, str] = {}


class PooledFetcher(FetcherWrapper):
    """The fetcher of one spider. `renew_cookies(request)` gives a request the cookies of a new session."""

    def __init__(
        self, fetcher: Fetcher, leaser: ProxyLeaser, sessions: SessionProxies, stats: StatsCollector, clock: Clock
    ) -> None:
        super().__init__(fetcher)
        self._leaser = leaser
        self._sessions = sessions
        self._count = stats.inc_value
        self._clock = clock
        self.renew_cookies: Callable[[Request], None] = lambda _: None

    async def fetch(
        self, request: Request, *, address: str = "", into: Into | None = None, proxy: str | None = None, **options: Any
    ) -> HttpResponse:
        """Also raises `NoProxyYet`, `CloseSpider` and `BadSpider`."""
        if proxy is not None or request.get_meta("proxy", NOT_SET) is not NOT_SET:
            return await self._fetcher.fetch(request, address=address, into=into, proxy=proxy, **options)
        selector, key = selector_of(request), _key(request)
        lease = await self._acquire(selector, key)
        outcome: Outcome | None = None
        try:
            if selector.session and self._sessions.changes(selector.target, selector.session, lease.proxy.key):
                self._count("proxy/sessions_rebound")
                self.renew_cookies(request)
            result = await self._transfer(request, lease.proxy.url, options, into)
            outcome = self._judge(request, selector, result, is_read=into is None)
            reported = None if outcome is None else self._leaser.attempts.judge(key, outcome)
        except BaseException:
            await self._leaser.release(lease, ())
            raise
        if not await self._leaser.release(lease, () if reported is None else (reported,)):
            self._count("proxy/leases_lost")
        return self._decide(key, lease, result, outcome)

    async def _acquire(self, selector: ProxySelector, key: Hashable) -> ProxyLease:
        try:
            lease = await self._leaser.acquire(selector, self._leaser.attempts.failed_proxies(key))
        except NoProxyYet:
            self._count("proxy/waits")
            raise
        self._count("proxy/leases")
        return lease

    async def _transfer(
        self, request: Request, proxy: str, options: dict[str, Any], into: Into | None
    ) -> HttpResponse | FetchError:
        try:
            return await self._fetcher.fetch(request, into=into, proxy=proxy, **options)
        except FetchError as error:
            return error

    def _judge(
        self, request: Request, selector: ProxySelector, result: HttpResponse | FetchError, *, is_read: bool
    ) -> Outcome | None:
        """Return the outcome for the proxy, or None if no request was sent."""
        if isinstance(result, FetchError):
            return None if isinstance(result, PrivateAddress) else judge_error(result)
        is_read = is_read and not result.skipped and request.method != "HEAD" and result.status not in NO_BODY_STATUSES
        rules = [rule for rule in self._leaser.rules_of(selector.target) if is_read or not _needs_body(rule)]
        location = redirect_target(request.url, result.headers.get("location")) if 300 <= result.status < 400 else None
        return judge(
            result.status,
            _retry_after(result),
            result.body,
            locations=[request.url, *([location] if location else [])],
            rules=rules,
            now=self._clock.now(),
            latency_s=result.latency_s,
        )

    def _decide(
        self, key: Hashable, lease: ProxyLease, result: HttpResponse | FetchError, outcome: Outcome | None
    ) -> HttpResponse:
        if outcome is not None:
            self._count(f"proxy/outcomes/{outcome.blame}")
        if outcome is None or outcome.blame not in FAILED:
            self._leaser.attempts.forget(key)
            if outcome is not None:
                self._leaser.proxy_worked()
            if isinstance(result, FetchError):
                raise result
            return result
        self._count(f"proxy/reason_count/{outcome.reason}")
        count = self._leaser.attempts.add_failure(key, lease.proxy.key, outcome)
        if not count:
            self._count("proxy/sent_again")
            raise NoProxyYet(f"through {lease.proxy.name}: {outcome.reason}", self._clock.now())
        self._count("proxy/given_up")
        reason = f"through {count} {'proxies' if count > 1 else 'proxy'}: {outcome.reason}"
        if isinstance(result, HttpResponse):
            return replace(result, refused=reason)
        raise FetchError(reason, retry=result.retry) from result


def _key(request: Request) -> Hashable:
    record = request.record
    return request.url if record is None else (record.segment, record.fingerprint)


def _retry_after(response: HttpResponse) -> Mapping[str, str]:
    """Return Retry-After, the only field that `judge` uses. A header without this field is not parsed."""
    headers = response.headers
    return {"retry-after": headers.get("retry-after")} if headers.may_have(b"retry-after") else NO_HEADERS


def _needs_body(rule: OutcomeRule) -> bool:
    return bool(rule.body or rule.shorter is not None or rule.longer is not None)
