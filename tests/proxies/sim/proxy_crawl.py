"""A crawl through proxies in virtual time with three strategies: our pool, round robin, and random with backoff.

Sites ban addresses with too many requests, and a share of all addresses; some proxies die; some pages are missing. Each
worker requests one page at a time, as an engine does, and retries it through the next proxy until the site answers.
Nothing waits in real time, and the same seed gives the same crawl.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, cycle
from math import inf

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome, judge
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import Wait
from lycosa.proxies.core.proxy import Proxy

RETRY_S = 0.25
END_MAX_S = 36_000.0
"""A crawl that takes longer is ended unfinished."""


@dataclass(frozen=True)
class Scenario:
    """Sites and proxies. Times in seconds.

    An address with more than `requests_max` requests to a site within `within_s` is banned there for `ban_s`; each
    request during the ban starts this time anew. `killed` and `banned` are shares of all proxies: at times between
    `from_s` and `to_s`, the killed proxies die, and the banned ones are banned permanently by all sites. A request
    without an answer ends after `timeout_s`; `missing` is the share of missing pages.
    """

    pages: int = 20_000
    sites: int = 2
    proxies: int = 50
    workers: int = 64
    requests_max: int = 40
    within_s: float = 2.0
    ban_s: float = 30.0
    missing: float = 0.02
    killed: float = 0.15
    banned: float = 0.15
    from_s: float = 5.0
    to_s: float = 25.0
    latency_s: tuple[float, float] = (0.05, 0.3)
    timeout_s: float = 10.0


class Strategy(ABC):
    """Chooses the proxy of each request."""

    @abstractmethod
    def choose(self, site: str, now: float) -> str | float:
        """Return a proxy, or when to try again."""

    @abstractmethod
    def record(self, site: str, proxy: str, status: int, now: float) -> None:
        """Record the status of a request; 0: no answer."""

    def is_retried(self, status: int, tries: int) -> bool:
        """True if the page is retried."""
        return status not in (200, 404)


class PoolStrategy(Strategy):
    """The proxy pool under test."""

    def __init__(self, proxies: list[str], seed: int, **policy: object) -> None:
        self.pool = GlobalPool(lambda _: TargetPolicy(members=len(proxies), **policy))  # type: ignore[arg-type]
        self.rng = random.Random(seed)
        by_name = {name: Proxy("http", name, 80) for name in proxies}
        self.names = {proxy.key: name for name, proxy in by_name.items()}
        self.pool.add(by_name.values(), 0.0)
        self.tokens: dict[tuple[str, str], int] = {}

    def choose(self, site: str, now: float) -> str | float:
        answer = self.pool.acquire(site, now, [self.rng.random()])
        if isinstance(answer, Wait):
            return now + RETRY_S if answer.at is None else answer.at
        name = self.names[answer[0].key]
        self.tokens[site, name] = answer[0].token
        return name

    def record(self, site: str, proxy: str, status: int, now: float) -> None:
        outcome = judge(status, {}, b"", now=now) if status else Outcome(Blame.PROXY, "timeout")
        self.pool.release(site, self.tokens.pop((site, proxy)), [outcome], now, self.rng.random())


class RoundRobin(Strategy):
    """One proxy after the other, regardless of the results."""

    def __init__(self, proxies: list[str]) -> None:
        self.proxies = cycle(proxies)

    def choose(self, site: str, now: float) -> str | float:
        return next(self.proxies)

    def record(self, site: str, proxy: str, status: int, now: float) -> None:
        pass


class BackOff(Strategy):
    """Chooses a proxy like scrapy-rotating-proxies: at random among the proxies that are not dead.

    Any status except 200, 301 and 302 is a ban, and so is an error; the page is tried five more times. A banned proxy
    is dead for all sites for a random time below 300 s; this maximum doubles each time, up to 3600 s. Dead proxies
    are checked every 5 s; when all are dead, all are tried again.
    """

    def __init__(self, proxies: list[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.alive = dict.fromkeys(proxies)
        self.dead: dict[str, float] = {}
        self.failures: Counter[str] = Counter()
        self.checked_at = 0.0

    def choose(self, site: str, now: float) -> str | float:
        if now - self.checked_at >= 5:
            self.checked_at = now
            self._revive([name for name, until in self.dead.items() if until <= now])
        if not self.alive:
            self._revive(list(self.dead))
        return self.rng.choice(list(self.alive))

    def _revive(self, names: list[str]) -> None:
        for name in names:
            del self.dead[name]
            self.alive[name] = None

    def record(self, site: str, proxy: str, status: int, now: float) -> None:
        if status == 200:
            self.dead.pop(proxy, None)
            self.alive[proxy] = None
            self.failures[proxy] = 0
        else:
            self.alive.pop(proxy, None)
            self.dead[proxy] = now + self.rng.uniform(0, min(3600, 300 * 2 ** self.failures[proxy]))
            self.failures[proxy] += 1

    def is_retried(self, status: int, tries: int) -> bool:
        return status != 200 and tries <= 5


@dataclass
class Site:
    """A site with its recent requests and bans, by address."""

    scenario: Scenario
    requests: dict[str, deque[float]] = field(default_factory=dict)
    banned_until: dict[str, float] = field(default_factory=dict)

    def answer(self, proxy: str, now: float, *, missing: bool) -> int:
        """Return the status."""
        if self.banned_until.get(proxy, 0.0) > now:
            self.ban(proxy, now + self.scenario.ban_s)
            return 403
        recent = self.requests.setdefault(proxy, deque())
        recent.append(now)
        while recent[0] < now - self.scenario.within_s:
            recent.popleft()
        if len(recent) > self.scenario.requests_max:
            self.ban(proxy, now + self.scenario.ban_s)
            return 403
        return 404 if missing else 200

    def ban(self, proxy: str, until: float) -> None:
        self.banned_until[proxy] = max(until, self.banned_until.get(proxy, 0.0))


@dataclass(frozen=True)
class SimulatedCrawl:
    """The result of a crawl. `rates`: the requests of each proxy and site, by second.

    `lost`: the proxies that were killed or banned permanently.
    """

    took_s: float
    pages: int
    requests: int
    refused: int
    unanswered: int
    rates: Counter[tuple[str, str, int]]
    lost: frozenset[str]

    @property
    def goodput(self) -> float:
        """Pages per second."""
        return self.pages / self.took_s

    @property
    def success(self) -> float:
        """The share of requests that returned the page, or its 404."""
        return self.pages / self.requests


@dataclass(slots=True)
class Page:
    """A page. `missing`: 404."""

    site: str
    missing: bool
    tries: int = 0


class Crawl:
    """One crawl."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        self.scenario = scenario
        self.rng = rng = random.Random(seed)
        self.proxies = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(scenario.proxies)]
        self.latency_s = {name: rng.uniform(*scenario.latency_s) for name in self.proxies}
        self.sites = {f"site{n}.example": Site(scenario) for n in range(scenario.sites)}
        lost = rng.sample(self.proxies, round((scenario.killed + scenario.banned) * scenario.proxies))
        middle = round(scenario.killed * scenario.proxies)
        self.killed = {name: rng.uniform(scenario.from_s, scenario.to_s) for name in lost[:middle]}
        self.banned = {name: rng.uniform(scenario.from_s, scenario.to_s) for name in lost[middle:]}
        names = list(self.sites)
        self.pages = deque(Page(names[n % len(names)], rng.random() < scenario.missing) for n in range(scenario.pages))
        self.counts: Counter[str] = Counter()
        self.rates: Counter[tuple[str, str, int]] = Counter()

    def run(self, strategy: Strategy) -> SimulatedCrawl:
        """Crawl all pages."""
        number = count()
        events: list[tuple[float, int, Page, str, int]] = []  # time, order, page, proxy, status
        for _ in range(min(self.scenario.workers, len(self.pages))):
            heappush(events, (0.0, next(number), self.pages.popleft(), "", 0))
        now = 0.0
        while events and now < END_MAX_S:
            now, _, page, proxy, status = heappop(events)
            if proxy:
                strategy.record(page.site, proxy, status, now)
                page.tries += 1
                if strategy.is_retried(status, page.tries):
                    self.pages.append(page)
                else:
                    self.counts["pages"] += status in (200, 404)
                if not self.pages:
                    continue
                page = self.pages.popleft()
            choice = strategy.choose(page.site, now)
            if isinstance(choice, str):
                at, status = self.request(page, choice, now)
                heappush(events, (at, next(number), page, choice, status))
            else:
                at = min(max(choice, now + 0.001), now + RETRY_S)
                heappush(events, (at, next(number), page, "", 0))
        lost = frozenset([*self.killed, *self.banned])
        pages, requests = self.counts["pages"], self.counts["requests"]
        return SimulatedCrawl(now, pages, requests, self.counts["refused"], self.counts["unanswered"], self.rates, lost)

    def request(self, page: Page, proxy: str, now: float) -> tuple[float, int]:
        """Request a page through a proxy. Return the time and the status of the answer."""
        self.counts["requests"] += 1
        self.rates[page.site, proxy, int(now)] += 1
        if self.killed.get(proxy, inf) <= now:
            self.counts["unanswered"] += 1
            return now + self.scenario.timeout_s, 0
        site = self.sites[page.site]
        if self.banned.get(proxy, inf) <= now:
            site.ban(proxy, inf)
        status = site.answer(proxy, now, missing=page.missing)
        self.counts["refused"] += status == 403
        return now + self.latency_s[proxy] * self.rng.uniform(0.8, 1.2), status
