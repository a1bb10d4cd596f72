"""A frontier as its contract tells it (`frontier.ports.Frontier`, `frontier.core.states`), for `test_frontier_history`.

Lists that are scanned, and nothing of the package. It says which URL is in which state, and which may be lent next;
where the contract leaves that open, it says which ones may. A host has two pauses, the one it must keep and the one
that nobody may exceed: they differ only where a clock was set back while nobody could tell the frontier.
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
"""Segment, number, and whether it was pushed whatever was known."""


@cache
def starts_at(segment: str) -> float:
    """Return the time that a segment is named for, 0 when it has another name."""
    for shape in ("%Y-%m-%d", "%Y-%m-%dT%H", "%Y-%m-%dT%H:%M"):
        try:
            return datetime.strptime(segment, shape).replace(tzinfo=UTC).timestamp()
        except ValueError:
            continue
    return 0.0


def order(segment: str) -> tuple[float, str]:
    """Return what segments are sorted by."""
    return starts_at(segment), segment


@dataclass(eq=False)
class Url:
    """`at` is what the listing shows: when it is due, ended, or its lease expires. `moves` counts what became of it."""

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
        """What it is known by."""
        return self.segment, self.number, self.unfiltered

    def become(self, state: str, at: float = 0.0, reason: str = "") -> None:
        """Change its state."""
        self.state, self.at, self.reason = state, at, reason
        self.moves += 1


@dataclass
class Segment:
    """A segment: open (finished when it has no work), archived or dropped."""

    name: str
    started: bool
    state: str = "open"


@dataclass
class Pause:
    """When the host was last contacted, and until when it is blocked."""

    started: float = 0.0
    blocked: float = 0.0

    def until(self, delay: float) -> float:
        """Return when it is over."""
        return max(self.started + delay if self.started else 0.0, self.blocked)

    def shifted(self, seconds: float) -> Pause:
        """Return it as it is after the clock was set back."""
        return Pause(max(self.started - seconds, 0.0), max(self.blocked - seconds, 0.0))

    def bounded(self, now: float) -> Pause:
        """Return what is believed of it at a time that may lie before it."""
        return Pause(min(self.started, now), min(self.blocked, now + PAUSE_MAX_S))


@dataclass
class Host:
    """`low` is the pause it must keep, `high` the one that may not be exceeded. `sure` says that they are the same.

    `fresh` is the latest pause that was set since the frontier saw the clock; `noted` are both pauses as committed.
    """

    low: Pause = field(default_factory=Pause)
    high: Pause = field(default_factory=Pause)
    sure: bool = True
    fresh: float | None = None
    paused: bool = False
    noted: tuple[Pause, Pause] = (Pause(), Pause())

    def set_back(self, seconds: float, now: float, delay: float) -> None:
        """The frontier sees that the clock was set back."""
        self.low = self.low.shifted(seconds)
        if self.sure:
            self.high = self.high.shifted(seconds)
        else:  # or the host was forgotten, and what is remembered of it was not moved
            latest, until = now + CLOCK_SLACK_S, self.high.until(delay)
            self.high = Pause(min(self.high.started, latest), max(self.low.blocked, min(until, latest + PAUSE_MAX_S)))
        if self.fresh is not None:
            self.block(min(self.fresh, now + PAUSE_MAX_S))
        self.fresh = None

    def block(self, until: float) -> None:
        """Contact it no sooner than this."""
        self.low.blocked = max(self.low.blocked, until)
        self.high.blocked = max(self.high.blocked, until)

    def note(self) -> None:
        """What is known of it is committed."""
        if self.paused:
            self.noted = replace(self.low), replace(self.high)
        self.paused = False

    def recalled(self, now: float) -> Host:
        """Return what the next process believes."""
        low, high = (pause.bounded(now) for pause in self.noted)
        return Host(low, high, sure=False, noted=self.noted)


class Crawl:
    """The model. `sure` is False for a frontier that forgets idle hosts: its pauses are then known less exactly."""

    def __init__(self, delay: float, places: int, lease_s: float, *, sure: bool) -> None:
        self.delay, self.places, self.lease_s, self.sure = delay, places, lease_s, sure
        self.urls: list[Url] = []
        self.segments: dict[str, Segment] = {}
        self.hosts: dict[str, Host] = {}
        self.vague: set[str] = set()
        self.position = self.arrivals = 0
        self.seen = -inf
        """The time that the frontier believes it is."""
        self.committed = b""

    # What there is.

    def count(self, *states: str) -> int:
        """Return how many URLs are in these states."""
        return sum(url.state in states for url in self.urls)

    def inside(self, segment: str) -> list[Url]:
        """Return the URLs of a segment."""
        return [url for url in self.urls if url.segment == segment]

    def known(self, segment: str) -> set[int]:
        """Return the numbers that a segment would not take again."""
        return {url.number for url in self.inside(segment) if not url.unfiltered}

    def find(self, number: int) -> list[Url]:
        """Return the URLs of a number, in the order of their segments."""
        found = (url for url in self.urls if url.number == number and not url.unfiltered)
        return sorted(found, key=lambda url: order(url.segment))

    def word(self, url: Url) -> str:
        """Return the state of a URL as it is listed."""
        ended = url.state in ("done", "dead")
        return "archived" if ended and self.segments[url.segment].state == "archived" else url.state

    def segment_word(self, segment: Segment) -> str:
        """Return the state of a segment as it is listed."""
        busy = any(url.state in WAITING for url in self.inside(segment.name))
        return "finished" if segment.state == "open" and not busy else segment.state

    def reasons(self, state: str, urls: Iterable[Url] | None = None) -> dict[str, int]:
        """Return how many of the URLs, or of all, are done or dead for which reason."""
        return dict(Counter(url.reason for url in (self.urls if urls is None else urls) if url.state == state))

    def asleep(self) -> list[Url]:
        """Return what is queued in segments that have not started."""
        return [url for url in self.urls if url.state == "queued" and not self.segments[url.segment].started]

    # What may be lent.

    def lendable(self) -> list[Url]:
        """Return what is queued in segments that are served."""
        return [url for url in self.urls if url.state == "queued" and self.segments[url.segment].started]

    def has_place(self, host: str) -> bool:
        """Whether one more transfer may be started."""
        return sum(url.state == "leased" and url.host == host for url in self.urls) < self.places

    def low(self, host: str) -> float:
        """Return the time before which the host may not be contacted."""
        return self.hosts[host].low.until(self.delay) if host in self.hosts else 0.0

    def high(self, host: str) -> float:
        """Return the time from which on the host must be contacted."""
        return self.hosts[host].high.until(self.delay) if host in self.hosts else 0.0

    def ready(self) -> set[str]:
        """Return the hosts that must have their turn now."""
        hosts = {url.host for url in self.lendable()}
        return {host for host in hosts if self.has_place(host) and self.high(host) <= self.seen}

    def first(self, host: str) -> list[Url]:
        """Return the URLs of a host that may be next: more than one only if they came at the same time."""
        urls = [url for url in self.lendable() if url.host == host]
        best = min(map(_place, urls), default=None)
        return [url for url in urls if _place(url) == best]

    def oldest_ready(self) -> float:
        """Return the start of the oldest segment of which something must be lent before all others."""
        return min((starts_at(self.first(host)[0].segment) for host in self.ready()), default=inf)

    def next_ready(self) -> tuple[float | None, float | None]:
        """Return between which times something can be lent."""
        dues = [url.due for url in self.urls if url.state in ("delayed", "retry")]
        dues += [starts_at(url.segment) for url in self.asleep()]
        hosts = {url.host for url in self.lendable() if self.has_place(url.host)}
        lows, highs = [self.low(host) for host in hosts], [self.high(host) for host in hosts]
        return min([*dues, *lows], default=None), min([*dues, *highs], default=None)

    # What happens.

    def push(self, url: Url, due: float = 0.0) -> bool:
        """Queue a URL, or let it sleep until then. Return whether it is new."""
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

    def see(self, now: float) -> None:
        """The frontier looks at the clock."""
        if now >= self.seen - CLOCK_SLACK_S:
            self.seen = max(self.seen, now)
            for host in self.hosts.values():
                host.fresh = None
            return
        seconds, self.seen = self.seen - now, now
        for host in self.hosts.values():
            host.set_back(seconds, now, self.delay)
        for url in self.urls:
            if url.state == "leased":
                url.at = min(url.at, now + self.lease_s)

    def wake(self, now: float) -> None:
        """Queue what is due, and start the segments whose time has come."""
        dues = [url.due for url in self.urls if url.state in ("delayed", "retry")]
        dues += [starts_at(url.segment) for url in self.asleep()]
        if min(dues, default=inf) <= now:
            self._start(now)

    def _start(self, now: float) -> None:
        for segment in self.segments.values():
            segment.started = segment.started or (segment.state != "dropped" and starts_at(segment.name) <= now)
        for url in self.urls:
            if url.state in ("delayed", "retry") and url.due <= now:
                url.become("queued")

    def lend(self, key: Key, host: str, attempts: int) -> Url:
        """Return the URL that is lent. Raises `AssertionError` if it may not be."""
        assert self.low(host) <= self.seen, f"{host} is contacted too soon"
        assert self.has_place(host), f"{host} is contacted too often"
        found = [url for url in self.first(host) if url.key == key]
        assert found, f"{key} is lent before {[url.key for url in self.first(host)]}"
        url = found[0]
        assert url.attempts == attempts
        if host not in self.vague:
            assert starts_at(url.segment) <= self.oldest_ready(), "an older segment was waiting"
        self.vague.discard(host)
        url.become("leased", self.seen + self.lease_s)
        pauses = self.hosts.setdefault(host, Host())
        pauses.low.started = pauses.high.started = self.seen
        pauses.sure = self.sure
        if pauses.sure:
            pauses.high.blocked = pauses.low.blocked
        pauses.paused = pauses.paused or self.delay > 0
        return url

    def expire(self, now: float) -> list[Url]:
        """Take back what is overdue, and return it."""
        self.see(now)
        late = [url for url in self.urls if url.state == "leased" and url.at <= now]
        for url in late:
            url.attempts += 1
            if url.attempts >= BAD_ENDS_MAX:
                url.become("dead", now, "lease expired")
            else:
                url.become("queued")
        return late

    def retry(self, url: Url, at: float) -> None:
        """A lease ended badly."""
        url.attempts += 1
        url.due = at
        url.become("retry", at)

    def block(self, host: str, until: float) -> None:
        """Lend nothing of a host."""
        pauses = self.hosts.setdefault(host, Host(sure=self.sure))
        pauses.block(until)
        pauses.fresh = max(until, pauses.fresh or until)
        pauses.paused = True

    def requeue(self, chosen: list[Url], into: str | None) -> int:
        """Queue what has ended again; all at the same time, since nobody says in which order."""
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
        """Make a finished segment read only."""
        segment = self.segments.get(name)
        if segment is None or self.segment_word(segment) != "finished":
            return False
        segment.state = "archived"
        for url in self.inside(name):
            url.moves += 1
        return True

    def drop(self, name: str) -> int:
        """Forget a segment."""
        gone = self.inside(name)
        self.vague |= {url.host for url in gone}
        self.urls = [url for url in self.urls if url.segment != name]
        self.segments[name].state = "dropped"
        return len(gone)

    def commit(self, position: int, *, pauses: bool = True) -> None:
        """Archive what a later stretch of time has followed, and note everything, or all but the pauses of hosts."""
        live = [segment for segment in self.segments.values() if segment.state != "dropped"]
        last = max((starts_at(segment.name) for segment in live if segment.started), default=0.0)
        for segment in live:
            if 0 < starts_at(segment.name) < last:
                self.archive(segment.name)
        self.position = position
        for host in self.hosts.values() if pauses else ():
            host.note()
        self.committed = b""
        self.committed = pickle.dumps(self)

    def crashed(self, now: float) -> Crawl:
        """Return what the next process finds at this time."""
        found: Crawl = pickle.loads(self.committed)
        found.committed = self.committed
        for url in found.urls:
            if url.state == "leased":
                url.become("queued")
        for segment in found.segments.values():
            segment.started = starts_at(segment.name) <= 0
        found.hosts = {name: host.recalled(now) for name, host in found.hosts.items()}
        found.seen = -inf
        found.vague = set()
        found._start(now)
        return found


def _place(url: Url) -> tuple[float, str, int, int]:
    return *order(url.segment), -url.priority, url.arrival
