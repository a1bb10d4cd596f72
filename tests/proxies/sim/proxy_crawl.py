"""A crawl through proxies in virtual time, with three ways to choose them: ours, in turn, and at random with backoff.

Sites ban addresses with too many requests, and a given part of all; some proxies die; some pages are missing. Each
worker requests one page at a time, as an engine does, and retries it through the proxy it gets, until the site has
answered. Nothing waits in real time, and the same seed gives the same crawl.
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

ASK_AGAIN_S = 0.25
LATE_S = 36_000.0
"""A crawl that takes longer is not finished."""


@dataclass(frozen=True)
class World:
    """Sites and proxies. Times in seconds.

    An address that requests more than `most` pages of a site within `within_s` is banned there for `ban_s`, anew with
    each request meanwhile. `killed` and `banned` are parts of all proxies: the former die, the latter are banned for
    ever by all sites, at times between `from_s` and `to_s`. A request without an answer ends after `timeout_s`; a part
    of the pages is `missing`.
    """

    pages: int = 20_000
    sites: int = 2
    proxies: int = 50
    workers: int = 64
    most: int = 40
    within_s: float = 2.0
    ban_s: float = 30.0
    missing: float = 0.02
    killed: float = 0.15
    banned: float = 0.15
    from_s: float = 5.0
    to_s: float = 25.0
    latency_s: tuple[float, float] = (0.05, 0.3)
    timeout_s: float = 10.0


class Way(ABC):
    """How proxies are chosen."""

    @abstractmethod
    def take(self, site: str, now: float) -> str | float:
        """Return a proxy, or when to try again."""

    @abstractmethod
    def done(self, site: str, proxy: str, status: int, now: float) -> None:
        """Note the status of a request; 0: no answer."""

    def again(self, status: int, tries: int) -> bool:
        """Whether the page is retried."""
        return status not in (200, 404)


class Ours(Way):
    """The pool."""

    def __init__(self, proxies: list[str], seed: int, **policy: object) -> None:
        self.pool = GlobalPool(lambda _: TargetPolicy(members=len(proxies), **policy))  # type: ignore[arg-type]
        self.rng = random.Random(seed)
        made = {name: Proxy("http", name, 80) for name in proxies}
        self.names = {proxy.key: name for name, proxy in made.items()}
        self.pool.add(made.values(), 0.0)
        self.tokens: dict[tuple[str, str], int] = {}

    def take(self, site: str, now: float) -> str | float:
        answer = self.pool.acquire(site, now, [self.rng.random()])
        if isinstance(answer, Wait):
            return now + ASK_AGAIN_S if answer.at is None else answer.at
        name = self.names[answer[0].key]
        self.tokens[site, name] = answer[0].token
        return name

    def done(self, site: str, proxy: str, status: int, now: float) -> None:
        outcome = judge(status, {}, b"", now=now) if status else Outcome(Blame.PROXY, "timeout")
        self.pool.release(site, self.tokens.pop((site, proxy)), [outcome], now, self.rng.random())


class InTurn(Way):
    """One after the other, whatever the results."""

    def __init__(self, proxies: list[str]) -> None:
        self.proxies = cycle(proxies)

    def take(self, site: str, now: float) -> str | float:
        return next(self.proxies)

    def done(self, site: str, proxy: str, status: int, now: float) -> None:
        pass


class BackOff(Way):
    """As scrapy-rotating-proxies: at random from those that are not dead.

    Any status except 200, 301 and 302 is a ban, and so is an error; the page is tried five more times. A banned proxy
    is dead for all sites for a time drawn from zero to 300 s, twice as long each time, at most 3600 s. Dead proxies are
    checked every 5 s; when all are dead, all are tried again.
    """

    def __init__(self, proxies: list[str], seed: int) -> None:
        self.rng = random.Random(seed)
        self.alive = dict.fromkeys(proxies)
        self.dead: dict[str, float] = {}
        self.failures: Counter[str] = Counter()
        self.looked_at = 0.0

    def take(self, site: str, now: float) -> str | float:
        if now - self.looked_at >= 5:
            self.looked_at = now
            self._revive([name for name, until in self.dead.items() if until <= now])
        if not self.alive:
            self._revive(list(self.dead))
        return self.rng.choice(list(self.alive))

    def _revive(self, names: list[str]) -> None:
        for name in names:
            del self.dead[name]
            self.alive[name] = None

    def done(self, site: str, proxy: str, status: int, now: float) -> None:
        if status == 200:
            self.dead.pop(proxy, None)
            self.alive[proxy] = None
            self.failures[proxy] = 0
        else:
            self.alive.pop(proxy, None)
            self.dead[proxy] = now + self.rng.uniform(0, min(3600, 300 * 2 ** self.failures[proxy]))
            self.failures[proxy] += 1

    def again(self, status: int, tries: int) -> bool:
        return status != 200 and tries <= 5


@dataclass
class Site:
    """A site, and what it knows of its clients."""

    world: World
    asked: dict[str, deque[float]] = field(default_factory=dict)
    banned_until: dict[str, float] = field(default_factory=dict)

    def answer(self, proxy: str, now: float, *, missing: bool) -> int:
        """Return the status."""
        if self.banned_until.get(proxy, 0.0) > now:
            self.ban(proxy, now + self.world.ban_s)
            return 403
        asked = self.asked.setdefault(proxy, deque())
        asked.append(now)
        while asked[0] < now - self.world.within_s:
            asked.popleft()
        if len(asked) > self.world.most:
            self.ban(proxy, now + self.world.ban_s)
            return 403
        return 404 if missing else 200

    def ban(self, proxy: str, until: float) -> None:
        self.banned_until[proxy] = max(until, self.banned_until.get(proxy, 0.0))


@dataclass(frozen=True)
class Crawled:
    """The result of a crawl. `rates`: the requests of each proxy and site, by second."""

    took_s: float
    pages: int
    requests: int
    refused: int
    unanswered: int
    rates: Counter[tuple[str, str, int]]
    lost: frozenset[str]

    @property
    def goodput(self) -> float:
        """Pages a second."""
        return self.pages / self.took_s

    @property
    def success(self) -> float:
        """The part of the requests that got the answer of the site about the page."""
        return self.pages / self.requests


@dataclass(slots=True)
class Page:
    """A page. `missing`: 404."""

    site: str
    missing: bool
    tries: int = 0


class Crawl:
    """One crawl."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.rng = rng = random.Random(seed)
        self.proxies = [f"10.0.{n // 250}.{n % 250 + 1}" for n in range(world.proxies)]
        self.latency_s = {name: rng.uniform(*world.latency_s) for name in self.proxies}
        self.sites = {f"site{n}.example": Site(world) for n in range(world.sites)}
        some = rng.sample(self.proxies, round((world.killed + world.banned) * world.proxies))
        middle = round(world.killed * world.proxies)
        self.killed = {name: rng.uniform(world.from_s, world.to_s) for name in some[:middle]}
        self.banned = {name: rng.uniform(world.from_s, world.to_s) for name in some[middle:]}
        names = list(self.sites)
        self.pages = deque(Page(names[n % len(names)], rng.random() < world.missing) for n in range(world.pages))
        self.counts: Counter[str] = Counter()
        self.rates: Counter[tuple[str, str, int]] = Counter()

    def run(self, way: Way) -> Crawled:
        """Crawl all pages."""
        number = count()
        events: list[tuple[float, int, Page, str, int]] = []  # when, …, through which proxy, status
        for _ in range(min(self.world.workers, len(self.pages))):
            heappush(events, (0.0, next(number), self.pages.popleft(), "", 0))
        now = 0.0
        while events and now < LATE_S:
            now, _, page, proxy, status = heappop(events)
            if proxy:
                way.done(page.site, proxy, status, now)
                page.tries += 1
                if way.again(status, page.tries):
                    self.pages.append(page)
                else:
                    self.counts["pages"] += status in (200, 404)
                if not self.pages:
                    continue
                page = self.pages.popleft()
            taken = way.take(page.site, now)
            if isinstance(taken, str):
                at, status = self.asked(page, taken, now)
                heappush(events, (at, next(number), page, taken, status))
            else:
                at = min(max(taken, now + 0.001), now + ASK_AGAIN_S)
                heappush(events, (at, next(number), page, "", 0))
        lost = frozenset([*self.killed, *self.banned])
        pages, requests = self.counts["pages"], self.counts["requests"]
        return Crawled(now, pages, requests, self.counts["refused"], self.counts["unanswered"], self.rates, lost)

    def asked(self, page: Page, proxy: str, now: float) -> tuple[float, int]:
        """Request a page through a proxy. Return the time and the status of the answer."""
        self.counts["requests"] += 1
        self.rates[page.site, proxy, int(now)] += 1
        if self.killed.get(proxy, inf) <= now:
            self.counts["unanswered"] += 1
            return now + self.world.timeout_s, 0
        site = self.sites[page.site]
        if self.banned.get(proxy, inf) <= now:
            site.ban(proxy, inf)
        status = site.answer(proxy, now, missing=page.missing)
        self.counts["refused"] += status == 403
        return now + self.latency_s[proxy] * self.rng.uniform(0.8, 1.2), status
