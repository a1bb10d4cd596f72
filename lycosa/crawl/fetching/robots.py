"""robots.txt for a crawl: fetched once a host under a lease of its own, kept in the frontier, parsed once in memory.

RFC 9309: 2xx is parsed; 4xx means that nothing is forbidden; a host that cannot be reached, or answers 5xx, forbids
everything (§2.3.1.4), so its pages are dead with that reason and can be requeued when it is back.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

import msgspec

from lycosa.core.errors import CloseSpider, FetchError, NoProxyYet, PrivateAddress
from lycosa.core.retry import Decision, RetryPolicy, decide_error, decide_status
from lycosa.core.url import host_key, redirected
from lycosa.crawl.engine.verdict import Closing, NotYet
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.guard import OPEN, Guard
from lycosa.frontier.core.model import RECORD_VERSION, HostFacts, Lease, UrlRecord
from lycosa.frontier.core.states import ROBOTS_TTL_S
from lycosa.frontier.ports import VisitFrontier
from lycosa.http.core.request import Request
from lycosa.http.core.robots import Robots, rules_of
from lycosa.http.ports import Fetcher

log = logging.getLogger(__name__)

BODY_MAX = 500 * 1024
"""Bytes of a robots.txt that are read (RFC 9309 §2.5)."""

REDIRECTS_MAX = 5
ASK_AGAIN_S = 3600.0
"""When an older robots.txt is used because the host cannot be asked, it is asked again after so long."""

LOOK_AGAIN_S = 3600.0
"""One that is too old is looked up no more often than that: another worker may have asked its host again."""

PARSED_MAX = 2000
"""Parsed robots.txt kept in memory."""

NOT_ASKED = b"# not asked: a public page led there"
"""Stands for the robots.txt of a private host that only guarded requests wanted so far. Nothing is forbidden to them:
they do not get there either."""

InTurn = Callable[[str, Callable[[str], Awaitable[None]]], Awaitable[None]]
"""Waits for the turn of a host, and calls with the address to connect to."""


class Told(Protocol):
    """Who is told what a host says."""

    def told(self, host: str, facts: HostFacts) -> float:
        """Take what a host says anew. Return the seconds that it asks for between two requests."""
        ...


class RobotsGate:
    """Knows what the hosts allow. `chance` returns a number from 0 to 1, `now` unix seconds."""

    def __init__(
        self,
        frontier: VisitFrontier,
        fetcher: Fetcher,
        user_agent: str,
        retry: RetryPolicy,
        chance: Callable[[], float],
        now: Callable[[], float],
        stats: StatsCollector | None = None,
        guard: Guard = OPEN,
    ) -> None:
        self._guard = guard
        self._now = now
        self._frontier = frontier
        self._fetcher = fetcher
        self._user_agent = user_agent
        self._retry = retry
        self._chance = chance
        self._parsed: OrderedDict[str, tuple[Robots, float]] = OrderedDict()
        self._stats = stats
        self.others: Sequence[Told] = ()
        """The gates of this crawl with other user agents, say: what one learns is news to all."""
        self.on_parsed: Callable[[Robots, Request], None] | None = None
        """Hears of every robots.txt that was read."""

    async def rules(self, host: str, *, guarded: bool = False) -> Robots:
        """Return the rules of a host for a request; one that was never asked allows everything."""
        rules, until = self._parsed.get(host, (None, 0.0))
        if rules is not None and self._now() < until:
            return rules
        facts = await self._frontier.host_facts(host) or HostFacts(robots_status=404)
        if facts.robots == NOT_ASKED:
            if guarded:
                return rules_of(facts.robots, facts.robots_status, self._user_agent)
            await self.learn(self._question(host, guarded=False), self._now())
            facts = await self._frontier.host_facts(host) or facts
        return self._keep(host, facts)

    async def ask_if_unknown(self, host: str, in_turn: InTurn, *, guarded: bool = False) -> None:
        """Fetch the robots.txt of a host that no page was fetched from, politely."""
        if host in self._parsed or await self._frontier.host_facts(host) is not None:
            return

        async def transfer(address: str) -> None:
            await self.learn(self._question(host, address, guarded=guarded), self._now())

        await in_turn(host, transfer)

    def _question(self, host: str, address: str = "", *, guarded: bool) -> Lease:
        """Return what asks a host for its robots.txt at once, and once."""
        url, tries = f"{host}/robots.txt", self._retry.retries_max
        return Lease(0, UrlRecord(RECORD_VERSION, 0, url, host, attempts=tries, guarded=guarded), 0.0, address)

    async def asked(self, lease: Lease, now: float) -> Decision | NotYet | Closing | None:
        """`learn` for a lease of the frontier, which may have to wait for a proxy."""
        try:
            again = await self.learn(lease, now)
        except NoProxyYet as later:
            return NotYet(later.until)
        except CloseSpider as close:
            return Closing(close.reason)
        if again is not None:
            log.info("robots.txt of %s: %s, again later", lease.record.host, again.reason)
        return again

    async def learn(self, lease: Lease, now: float) -> Decision | None:
        """Fetch the host's robots.txt; a decision to try again later, or None when it is known now."""
        host, attempts = lease.record.host, lease.record.attempts
        decision: Decision | None
        self._count("request_count")
        try:
            status, body, retry_after = await self._fetch(lease)
        except PrivateAddress:  # of a link of a public page, which will be told so itself
            await self.remember(host, HostFacts(NOT_ASKED, 404, now - ROBOTS_TTL_S + ASK_AGAIN_S), now)
            return None
        except FetchError as error:
            self._count(f"exception_count/{type(error).__name__}")
            decision = decide_error(self._retry, attempts, error, now, self._chance())
            status, body = 0, str(error).encode()  # nothing to parse: what is kept is why
        else:
            self._count("response_count")
            self._count(f"response_status_count/{status}")
            failed = status == 429 or status >= 500
            decision = (
                decide_status(self._retry, attempts, status, retry_after, now, self._chance()) if failed else None
            )
        if decision is not None and decision.retry_at is not None:
            return decision
        facts = HostFacts(body, status, now)
        if decision is not None:
            facts = await self._older(host, now) or facts
        await self.remember(host, facts, now)
        return None

    async def _older(self, host: str, now: float) -> HostFacts | None:
        """What the host said before holds on when it cannot be asked again (RFC 9309 §2.4); it is asked again soon."""
        facts = await self._frontier.host_facts(host)
        if facts is None or rules_of(facts.robots, facts.robots_status, self._user_agent).unreachable:
            return None
        return msgspec.structs.replace(facts, robots_at=now - ROBOTS_TTL_S + ASK_AGAIN_S)

    async def why_unreachable(self, host: str) -> str:
        """Return why the robots.txt of a host could not be had, in the words of a reason."""
        facts = await self._frontier.host_facts(host) or HostFacts()
        return str(facts.robots_status) if facts.robots_status else facts.robots.decode("utf-8", "replace")

    async def _fetch(self, lease: Lease) -> tuple[int, bytes, str]:
        url, host = lease.record.url, lease.record.host
        guarded = self._guard.public_only(lease.record)
        for _ in range(REDIRECTS_MAX + 1):
            address = lease.address if host_key(url) == host else ""  # it is that of this host, not of where it leads
            try:
                response = await self._fetcher.fetch(
                    Request(url), max_body=BODY_MAX, cut=True, address=address, public_only=guarded
                )
            except PrivateAddress:
                if url == lease.record.url:
                    raise
                break  # the host has none that anybody may see
            guarded = guarded or self._guard.guards(lease.record, response.ip)
            location = response.headers.get("location") if 300 <= response.status < 400 else ""
            target = redirected(url, location)
            if target is None:
                return response.status, response.body, response.headers.get("retry-after")
            url = target
        return 404, b"", ""  # RFC 9309 §2.3.1.2: too many redirects count as unavailable

    async def remember(self, host: str, facts: HostFacts, now: float) -> None:
        """Keep what a host says, and tell the others."""
        delay_s = max(gate.told(host, facts) for gate in (self, *self.others))  # they share the host
        known = HostFacts(facts.robots, facts.robots_status, facts.robots_at, delay_s)
        await self._frontier.set_host_facts(host, known, now)

    def told(self, host: str, facts: HostFacts) -> float:
        """Take what a host says anew. Return the seconds that it asks for between two requests."""
        rules = self._keep(host, facts)
        if facts.robots != NOT_ASKED and self.on_parsed is not None:
            self.on_parsed(rules, Request(f"{host}/robots.txt"))
        return rules.crawl_delay_s

    def forget(self, host: str) -> None:
        """Something new is known of the host: the frontier is asked again."""
        self._parsed.pop(host, None)

    def _count(self, what: str) -> None:
        if self._stats is not None:
            self._stats.inc_value("robotstxt/" + what)

    def _keep(self, host: str, facts: HostFacts) -> Robots:
        rules = rules_of(facts.robots, facts.robots_status, self._user_agent)
        if facts.robots == NOT_ASKED:  # by the next one who may, perhaps
            return rules
        self._parsed[host] = rules, max(facts.robots_at + ROBOTS_TTL_S, self._now() + LOOK_AGAIN_S)
        if len(self._parsed) > PARSED_MAX:
            self._parsed.popitem(last=False)
        return rules
