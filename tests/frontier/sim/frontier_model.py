"""A model of the frontier's contract (`frontier.ports.Frontier`, `frontier.core.states`), for `test_frontier_history`.

It only scans lists, and imports nothing from the package. It says which state each URL is in, and which URL may be
leased next; where the contract leaves that open, it gives all allowed ones. A host has a lower and an upper bound of
its pause: they differ only if the clock was set back while the host may not have been in memory.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from math import inf

BAD_ENDS_MAX = 5
CLOCK_SLACK_S = 1.0
PAUSE_MAX_S = 3600.0
WAITING = ("queued", "leased", "delayed", "retry")

Key = tuple[str, int, bool]
"""Segment, number, and whether it was pushed without the duplicate filter."""


@cache
def starts_at(segment: str) -> float:
    """Return the time that a segment's name gives, 0 when the name is no time."""
    for shape in ("%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M"):
        try:
            return datetime.strptime(segment.partition("+")[0], shape).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return 0.0


def is_followed(segment: str, others: Iterable[str]) -> bool:
    """Whether one of the other segments is a later one of the same period."""
    period, start = segment.partition("+")[2], starts_at(segment)
    return 0 < start < max((starts_at(each) for each in others if each.partition("+")[2] == period), default=0.0)


def order(segment: str) -> tuple[float, str]:
    """Return the sort key of segments."""
    return starts_at(segment), segment


@dataclass(eq=False)
class Url:
    """`at` is the time that the listing shows: due, ended, or end of the lease. `moves` counts the state changes."""

    number: int
    segment: str
    host: str
    priority: int
    unfiltered: bool
    due: float = 0.0
    arrival: int = 0
    state: str = "queued"
    attempts: int = 0
    at: float = 0.0
    reason: str = ""
    etag: str = ""
    moves: int = 0

    @property
    def key(self) -> Key:
        """Segment, number and `unfiltered`."""
        return self.segment, self.number, self.unfiltered

    def become(self, state: str, at: float = 0.0, reason: str = "") -> None:
        """Change its state."""
        self.state, self.at, self.reason = state, at, reason
        self.moves += 1


@dataclass
class Segment:
    """A segment: open (listed as finished when it has no work), archived or dropped."""

    name: str
    started: bool
    state: str = "open"


@dataclass
class Pause:
    """When the host was last contacted, and when its block ends."""

    started: float = 0.0
    blocked: float = 0.0

    def until(self, delay: float) -> float:
        """Return the end of the pause."""
        return max(self.started + delay if self.started else 0.0, self.blocked)

    def shifted(self, seconds: float) -> Pause:
        """Return the pause after the clock was set back by this much."""
        return Pause(max(self.started - seconds, 0.0), max(self.blocked - seconds, 0.0))

    def bounded(self, now: float) -> Pause:
        """Return the pause, limited to what is plausible at `now`; after a clock set-back, `started` may be later."""
        return Pause(min(self.started, now), min(self.blocked, now + PAUSE_MAX_S))


@dataclass
class Host:
    """`low` is the least pause that must be kept, `high` the longest one allowed. `exact` says that they are equal.

    `fresh` is the latest block set since the frontier last read the clock; `saved` are both pauses as committed.
    """

    low: Pause = field(default_factory=Pause)
    high: Pause = field(default_factory=Pause)
    exact: bool = True
    fresh: float | None = None
    paused: bool = False
    saved: tuple[Pause, Pause] = (Pause(), Pause())

    def set_back(self, seconds: float, now: float, delay: float) -> None:
        """The frontier notices that the clock was set back."""
        self.low = self.low.shifted(seconds)
        if self.exact:
            self.high = self.high.shifted(seconds)
        else:  # the host may have been unloaded, and its saved pause was not shifted
            latest, until = now + CLOCK_SLACK_S, self.high.until(delay)
            self.high = Pause(min(self.high.started, latest), max(self.low.blocked, min(until, latest + PAUSE_MAX_S)))
        if self.fresh is not None:
            self.block(min(self.fresh, now + PAUSE_MAX_S))
        self.fresh = None

    def block(self, until: float) -> None:
        """Contact the host no sooner than this."""
        self.low.blocked = max(self.low.blocked, until)
        self.high.blocked = max(self.high.blocked, until)

    def save(self) -> None:
        """Commit both pauses."""
        if self.paused:
            self.saved = replace(self.low), replace(self.high)
        self.paused = False

    def restored(self, now: float) -> Host:
        """Return the host as the next process restores it."""
        low, high = (pause.bounded(now) for pause in self.saved)
        return Host(low, high, exact=False, saved=self.saved)


class Crawl:
    """The model. `exact` is False for a frontier that unloads idle hosts: only bounds of its pauses are then known."""

    def __init__(self, delay: float, concurrency: int, lease_s: float, *, exact: bool) -> None:
        self.delay, self.concurrency, self.lease_s, self.exact = delay, concurrency, lease_s, exact
        self.urls: list[Url] = []
        self.segments: dict[str, Segment] = {}
        self.hosts: dict[str, Host] = {}
        self.uncertain: set[str] = set()
        """Hosts of dropped URLs: the frontier may still believe that they have work."""
        self.position = self.arrivals = 0
        self.clock = -inf
        """The time that the frontier assumes."""
        self.committed = b""

    # Queries.

    def count(self, *states: str) -> int:
        """Return how many URLs are in these states."""
        return sum(url.state in states for url in self.urls)

    def inside(self, segment: str) -> list[Url]:
        """Return the URLs of a segment."""
        return [url for url in self.urls if url.segment == segment]

    def known(self, segment: str) -> set[int]:
        """Return the numbers that a segment would drop as duplicates."""
        return {url.number for url in self.inside(segment) if not url.unfiltered}

    def find(self, number: int) -> list[Url]:
        """Return the URLs of a number, in the order of their segments."""
        found = (url for url in self.urls if url.number == number and not url.unfiltered)
        return sorted(found, key=lambda url: order(url.segment))

    def state_of(self, url: Url) -> str:
        """Return the state of a URL as it is listed."""
        ended = url.state in ("done", "dead")
        return "archived" if ended and self.segments[url.segment].state == "archived" else url.state

    def segment_state(self, segment: Segment) -> str:
        """Return the state of a segment as it is listed."""
        busy = any(url.state in WAITING for url in self.inside(segment.name))
        return "finished" if segment.state == "open" and not busy else segment.state

    def reasons(self, state: str, urls: Iterable[Url] | None = None) -> dict[str, int]:
        """Return the number of URLs in this state, by reason. All URLs are counted unless `urls` is given."""
        return dict(Counter(url.reason for url in (self.urls if urls is None else urls) if url.state == state))

    def not_started(self) -> list[Url]:
        """Return the queued URLs of segments that have not started."""
        return [url for url in self.urls if url.state == "queued" and not self.segments[url.segment].started]

    # Leasable URLs.

    def leasable(self) -> list[Url]:
        """Return the queued URLs of segments that have started."""
        return [url for url in self.urls if url.state == "queued" and self.segments[url.segment].started]

    def below_limit(self, host: str) -> bool:
        """Whether the host may have one more transfer."""
        return sum(url.state == "leased" and url.host == host for url in self.urls) < self.concurrency

    def low(self, host: str) -> float:
        """Return the time before which the host may not be contacted."""
        return self.hosts[host].low.until(self.delay) if host in self.hosts else 0.0

    def high(self, host: str) -> float:
        """Return the time from which the host must be offered."""
        return self.hosts[host].high.until(self.delay) if host in self.hosts else 0.0

    def ready(self) -> set[str]:
        """Return the hosts that must be offered now."""
        hosts = {url.host for url in self.leasable()}
        return {host for host in hosts if self.below_limit(host) and self.high(host) <= self.clock}

    def first(self, host: str) -> list[Url]:
        """Return the URLs of a host that may be next: several only if they arrived at the same time."""
        urls = [url for url in self.leasable() if url.host == host]
        best = min(map(_sort_key, urls), default=None)
        return [url for url in urls if _sort_key(url) == best]

    def oldest_ready(self) -> float:
        """Return the start of the oldest segment with a leasable URL of a ready host. Later ones must wait for it."""
        return min((starts_at(self.first(host)[0].segment) for host in self.ready()), default=inf)

    def next_ready(self) -> tuple[float | None, float | None]:
        """Return the earliest and the latest time at which the next URL becomes leasable."""
        dues = [url.due for url in self.urls if url.state in ("delayed", "retry")]
        dues += [starts_at(url.segment) for url in self.not_started()]
        hosts = {url.host for url in self.leasable() if self.below_limit(url.host)}
        lows, highs = [self.low(host) for host in hosts], [self.high(host) for host in hosts]
        return min([*dues, *lows], default=None), min([*dues, *highs], default=None)

    # Operations.

    def push(self, url: Url, due: float = 0.0) -> bool:
        """Queue a URL, or delay it until `due`. Return whether it is new."""
        segment = self.segments.get(url.segment)
        if segment is not None and segment.state != "open":
            return False
        if not url.unfiltered and url.number in self.known(url.segment):
            return False
        if segment is None:
            self.segments[url.segment] = Segment(url.segment, starts_at(url.segment) <= 0)
        self.arrivals += 1
        url.arrival, url.due = self.arrivals, due
        url.state, url.at = ("delayed", url.due) if url.due > 0 else ("queued", 0.0)
        self.urls.append(url)
        return True

    def update_clock(self, now: float) -> None:
        """The frontier reads the clock."""
        if now >= self.clock - CLOCK_SLACK_S:
            self.clock = max(self.clock, now)
            for host in self.hosts.values():
                host.fresh = None
            return
        seconds, self.clock = self.clock - now, now
        for host in self.hosts.values():
            host.set_back(seconds, now, self.delay)
        for url in self.urls:
            if url.state == "leased":
                url.at = min(url.at, now + self.lease_s)

    def promote_due(self, now: float) -> None:
        """Queue the due URLs, and start the segments whose time has come."""
        dues = [url.due for url in self.urls if url.state in ("delayed", "retry")]
        dues += [starts_at(url.segment) for url in self.not_started()]
        if min(dues, default=inf) <= now:
            self._start(now)

    def _start(self, now: float) -> None:
        for segment in self.segments.values():
            segment.started = segment.started or (segment.state != "dropped" and starts_at(segment.name) <= now)
        for url in self.urls:
            if url.state in ("delayed", "retry") and url.due <= now:
                url.become("queued")

    def lease(self, key: Key, host: str, attempts: int) -> Url:
        """Lease a URL and return it. Raises `AssertionError` if it may not be leased."""
        assert self.low(host) <= self.clock, f"{host} is contacted too soon"
        assert self.below_limit(host), f"{host} has too many transfers"
        found = [url for url in self.first(host) if url.key == key]
        assert found, f"{key} is leased before {[url.key for url in self.first(host)]}"
        url = found[0]
        assert url.attempts == attempts
        if host not in self.uncertain:
            assert starts_at(url.segment) <= self.oldest_ready(), "an older segment was waiting"
        self.uncertain.discard(host)
        url.become("leased", self.clock + self.lease_s)
        pauses = self.hosts.setdefault(host, Host())
        pauses.low.started = pauses.high.started = self.clock
        pauses.exact = self.exact
        if pauses.exact:
            pauses.high.blocked = pauses.low.blocked
        pauses.paused = pauses.paused or self.delay > 0
        return url

    def expire(self, now: float) -> list[Url]:
        """Requeue the URLs of expired leases, and return them."""
        self.update_clock(now)
        late = [url for url in self.urls if url.state == "leased" and url.at <= now]
        for url in late:
            url.attempts += 1
            if url.attempts >= BAD_ENDS_MAX:
                url.become("dead", now, "lease expired")
            else:
                url.become("queued")
        return late

    def retry(self, url: Url, at: float) -> None:
        """End a lease with a failure."""
        url.attempts += 1
        url.due = at
        url.become("retry", at)

    def block(self, host: str, until: float) -> None:
        """Lease nothing of a host before `until`."""
        pauses = self.hosts.setdefault(host, Host(exact=self.exact))
        pauses.block(until)
        pauses.fresh = max(until, pauses.fresh or until)
        pauses.paused = True

    def requeue(self, chosen: list[Url], into: str | None) -> int:
        """Queue finished URLs again. All arrive at the same time, since their order is not specified."""
        moved, together = 0, self.arrivals + 1
        for url in sorted(chosen, key=lambda url: url.arrival):
            moved += self._copy(url, into) if into is not None else self._again(url)
        for url in self.urls:
            if url.arrival > together:
                url.arrival = together
        return moved

    def _again(self, url: Url) -> bool:
        if self.segments[url.segment].state != "open":
            return False
        self.arrivals += 1
        url.arrival, url.attempts, url.due = self.arrivals, 0, 0.0
        url.become("queued")
        return True

    def _copy(self, url: Url, into: str) -> bool:
        return self.push(Url(url.number, into, url.host, url.priority, unfiltered=False, etag=url.etag))

    def archive(self, name: str) -> bool:
        """Make a finished segment read-only."""
        segment = self.segments.get(name)
        if segment is None or self.segment_state(segment) != "finished":
            return False
        segment.state = "archived"
        for url in self.inside(name):
            url.moves += 1
        return True

    def drop(self, name: str) -> int:
        """Remove a segment. Return the number of its URLs."""
        dropped = self.inside(name)
        self.uncertain |= {url.host for url in dropped}
        self.urls = [url for url in self.urls if url.segment != name]
        self.segments[name].state = "dropped"
        return len(dropped)

    def commit(self, position: int, *, pauses: bool = True) -> None:
        """Archive finished segments that a later one followed, and save everything, or all but the pauses of hosts."""
        live = [segment for segment in self.segments.values() if segment.state != "dropped"]
        started = [segment.name for segment in live if segment.started]
        for segment in live:
            if is_followed(segment.name, started):
                self.archive(segment.name)
        self.position = position
        for host in self.hosts.values() if pauses else ():
            host.save()
        self.committed = b""
        self.committed = pickle.dumps(self)

    def crashed(self, now: float) -> Crawl:
        """Return the state that the next process opens at this time."""
        found: Crawl = pickle.loads(self.committed)
        found.committed = self.committed
        for url in found.urls:
            if url.state == "leased":
                url.become("queued")
        for segment in found.segments.values():
            segment.started = starts_at(segment.name) <= 0
        found.hosts = {name: host.restored(now) for name, host in found.hosts.items()}
        found.clock = -inf
        found.uncertain = set()
        found._start(now)
        return found


def _sort_key(url: Url) -> tuple[float, str, int, int]:
    return *order(url.segment), -url.priority, url.arrival
