"""robots.txt for a crawl: fetched once per host under a separate lease, stored in the frontier, parsed in memory.

RFC 9309: 2xx is parsed, 4xx except 429 allows everything. If the host cannot be reached or responds with 429 or 5xx, an
old file stays valid. Without one, everything is forbidden (§2.3.1.4): the host's pages are dead with that reason, and
can be requeued when the host is reachable again.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from lycosa.core.errors import CloseSpider, FetchError, NoProxyYet, PrivateAddress
from lycosa.core.recent_dict import RecentDict
from lycosa.core.retry import RetryDecision, RetryPolicy, decide_error, decide_status
from lycosa.core.url import canonicalize, host_key, redirect_target
from lycosa.crawl.engine.verdict import CloseCrawl, Deferred, reason_text
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.guard import NO_GUARD, PublicOnlyGuard
from lycosa.frontier.core.model import RECORD_VERSION, HostFacts, Lease, UrlRecord
from lycosa.frontier.core.states import ROBOTS_TTL_S
from lycosa.frontier.ports import VisitFrontier
from lycosa.http.core.request import Request
from lycosa.http.core.robots import Robots, robots_from_response
from lycosa.http.ports import Fetcher

log = logging.getLogger(__name__)

BODY_MAX = 500 * 1024
"""Maximum bytes read of a robots.txt (RFC 9309 §2.5)."""

REDIRECTS_MAX = 5
REFETCH_AFTER_ERROR_S = 3600.0
"""Seconds until robots.txt is fetched again if the host is unreachable and an old file stays valid, or if NOT_FETCHED
is stored. Without an old file, the robots.txt of an unreachable host is fetched again after ROBOTS_TTL_S."""

REREAD_S = 3600.0
"""Seconds after which an expired robots.txt is read from the frontier again: another worker may have fetched it."""

PARSED_MAX = 2000

NOT_FETCHED = b"# not asked: a public page led there"
"""Stored instead of the robots.txt of a private host, as long as only guarded requests (see `guard`) have needed it.

Guarded requests may not contact the host, so its robots.txt is not fetched, and it is harmless that this placeholder
allows everything. The text means "not fetched, because only public pages led to this host". It must not change, because
frontiers have stored it.
"""

UNREACHABLE_REASONS = "cannot fetch *"
"""A glob that matches the reasons of `RobotsGate.why_unreachable`."""

WithClaim = Callable[[str, Callable[[str], Awaitable[None]]], Awaitable[None]]
"""Takes a host and `transfer`, waits for a slot of the host, and awaits `transfer(address)`."""


class HostFactsListener(Protocol):
    """Receives new facts about hosts."""

    def apply(self, host: str, facts: HostFacts) -> float:
        """Use new facts about a host. Return the Crawl-delay of its robots.txt, in seconds."""


@dataclass(eq=False, repr=False)
class RobotsGate:
    """Fetches and applies the robots.txt of hosts, for one user agent.

    `chance` returns a random number from 0 to 1, `now` the time in unix seconds.
    """

    frontier: VisitFrontier
    fetcher: Fetcher
    user_agent: str
    retry: RetryPolicy
    chance: Callable[[], float]
    now: Callable[[], float]
    stats: StatsCollector | None = None
    guard: PublicOnlyGuard = NO_GUARD

    def __post_init__(self) -> None:
        self._parsed: RecentDict[str, tuple[Robots, float]] = RecentDict(PARSED_MAX)
        self.peers: Sequence[HostFactsListener] = ()
        """Listeners for the facts that this gate fetches, such as gates with other user agents."""
        self.on_parsed: Callable[[Robots, Request], None] | None = None
        """Called with the rules of every new robots.txt, and its request."""

    async def rules(self, host: str, *, guarded: bool = False) -> Robots:
        """Return the rules of a host. If its robots.txt was never fetched, they allow everything."""
        rules, until = self._parsed.get(host, (None, 0.0))
        if rules is not None and self.now() < until:
            return rules
        facts = await self.frontier.host_facts(host) or HostFacts(robots_status=404)
        if facts.robots == NOT_FETCHED:
            if guarded:
                return robots_from_response(facts.robots, facts.robots_status, self.user_agent)
            await self.fetch(self._one_shot_lease(host, guarded=False), self.now())
            facts = await self.frontier.host_facts(host) or facts
        return self._parse(host, facts)

    async def fetch_if_unknown(self, host: str, with_claim: WithClaim, *, guarded: bool = False) -> None:
        """Fetch the robots.txt of a host, after its crawl delay, unless it is known."""
        if host in self._parsed or await self.frontier.host_facts(host) is not None:
            return

        async def transfer(address: str) -> None:
            await self.fetch(self._one_shot_lease(host, address, guarded=guarded), self.now())

        await with_claim(host, transfer)

    def _one_shot_lease(self, host: str, address: str = "", *, guarded: bool) -> Lease:
        """Return a lease of a record without retries left: robots.txt is fetched at once, and a failure is final."""
        url, tries = f"{host}/robots.txt", self.retry.retries_max
        return Lease(0, UrlRecord(RECORD_VERSION, 0, url, host, attempts=tries, guarded=guarded), 0.0, address)

    async def resolve(self, lease: Lease, now: float) -> RetryDecision | Deferred | CloseCrawl | None:
        """Fetch the robots.txt for a lease. Return why the record must be leased again, or None."""
        try:
            retry = await self.fetch(lease, now)
        except NoProxyYet as later:
            return Deferred(later.until)
        except CloseSpider as close:
            return CloseCrawl(close.reason)
        if retry is not None:
            log.info("robots.txt of %s: %s, will be retried", lease.record.host, retry.reason)
        return retry

    async def fetch(self, lease: Lease, now: float) -> RetryDecision | None:
        """Fetch the host's robots.txt and store it. Return a decision to retry, or None if it was stored."""
        host, attempts = lease.record.host, lease.record.attempts
        decision: RetryDecision | None
        self._inc("request_count")
        try:
            status, body, retry_after = await self._fetch(lease)
        except PrivateAddress:  # only raised for guarded requests; their pages will fail in the same way
            await self.store(host, HostFacts(NOT_FETCHED, 404, now - ROBOTS_TTL_S + REFETCH_AFTER_ERROR_S), now)
            return None
        except FetchError as error:
            self._inc(f"exception_count/{type(error).__name__}")
            decision = decide_error(self.retry, attempts, error, now, self.chance())
            status, body = 0, str(error).encode()  # store the error instead of a file
        else:
            self._inc("response_count")
            self._inc(f"response_status_count/{status}")
            decision = None
            if status == 429 or status >= 500:
                decision = decide_status(self.retry, attempts, status, retry_after, now, self.chance())
        if decision is not None and decision.retry_at is not None:
            return decision
        facts = HostFacts(body, status, now)
        if decision is not None:
            facts = await self._previous(host, now) or facts
        await self.store(host, facts, now)
        return None

    async def _previous(self, host: str, now: float) -> HostFacts | None:
        """Return the old robots.txt, if any: it stays valid while the host cannot be reached (RFC 9309 §2.4)."""
        facts = await self.frontier.host_facts(host)
        if facts is None or robots_from_response(facts.robots, facts.robots_status, self.user_agent).unreachable:
            return None
        return msgspec.structs.replace(facts, robots_at=now - ROBOTS_TTL_S + REFETCH_AFTER_ERROR_S)

    async def why_unreachable(self, host: str) -> str:
        facts = await self.frontier.host_facts(host) or HostFacts()
        why = facts.robots_status or facts.robots.decode("utf-8", "replace")
        return reason_text(f"cannot fetch {canonicalize(f'{host}/robots.txt')}: {why}")

    async def _fetch(self, lease: Lease) -> tuple[int, bytes, str]:
        url, host = lease.record.url, lease.record.host
        guarded = self.guard.public_only(lease.record)
        for _ in range(REDIRECTS_MAX + 1):
            address = lease.address if host_key(url) == host else ""  # a redirect may lead to another host
            try:
                response = await self.fetcher.fetch(
                    Request(url), max_body=BODY_MAX, cut=True, address=address, public_only=guarded
                )
            except PrivateAddress:
                if url == lease.record.url:
                    raise
                break  # a redirect to a private address counts as unavailable
            guarded = guarded or self.guard.guards_requests_of(lease.record, response.ip)
            location = response.headers.get("location") if 300 <= response.status < 400 else ""
            target = redirect_target(url, location)
            if target is None:
                return response.status, response.body, response.headers.get("retry-after")
            url = target
        return 404, b"", ""  # RFC 9309 §2.3.1.2: too many redirects count as unavailable

    async def store(self, host: str, facts: HostFacts, now: float) -> None:
        # All gates share the host: the longest Crawl-delay for any of their user agents applies.
        delay_s = max(gate.apply(host, facts) for gate in (self, *self.peers))
        known = HostFacts(facts.robots, facts.robots_status, facts.robots_at, delay_s)
        await self.frontier.set_host_facts(host, known, now)

    def apply(self, host: str, facts: HostFacts) -> float:
        rules = self._parse(host, facts)
        if facts.robots != NOT_FETCHED and self.on_parsed is not None:
            self.on_parsed(rules, Request(f"{host}/robots.txt"))
        return rules.crawl_delay_s

    def forget(self, host: str) -> None:
        self._parsed.pop(host, None)

    def _inc(self, name: str) -> None:
        if self.stats is not None:
            self.stats.inc_value("robotstxt/" + name)

    def _parse(self, host: str, facts: HostFacts) -> Robots:
        rules = robots_from_response(facts.robots, facts.robots_status, self.user_agent)
        # Do not cache the rules of a placeholder or of an unreachable file. An unguarded request may fetch the file
        # that is NOT_FETCHED now. When dead URLs are requeued, another worker may have fetched the file that was
        # unreachable.
        if facts.robots == NOT_FETCHED or rules.unreachable:
            self._parsed.pop(host, None)
            return rules
        self._parsed[host] = rules, max(facts.robots_at + ROBOTS_TTL_S, self.now() + REREAD_S)
        return rules
