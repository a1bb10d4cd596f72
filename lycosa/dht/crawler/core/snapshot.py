"""Snapshots of a crawl, the rates between two snapshots, and the history of a run in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from lycosa.dht.core.crawl_funnel import CrawlOutcome
from lycosa.dht.core.events import Reachability
from lycosa.dht.core.limits import QueryLimit

POINTS_MAX = 240
"""A quarter of the width of a chart in pixels."""
RATE_OVER_S = 60.0


@dataclass(frozen=True, slots=True)
class CrawlSnapshot:
    """Counts since the start, and the current state. `at` is monotonic seconds."""

    at: float
    counts: Mapping[CrawlOutcome, int] = field(default_factory=dict)
    queued: int = 0
    queued_max: int = 0
    delayed: int = 0
    done: int = 0
    in_work: int = 0
    coverage: float = 0.0
    """Share of the key space that this sweep has covered, from 0 to 1."""
    known_share: float = 0.0
    """Estimated share of the network's infohashes that the crawl knows, from 0 to 1."""
    sweeps: int = 0
    good_contacts: int = 0
    other_contacts: int = 0
    reachability: Reachability = Reachability.UNKNOWN
    """Also unknown if all nodes are read-only or on loopback."""
    queries_out: int = 0
    answers_in: int = 0
    unanswered: int = 0
    bytes_out: int = 0
    bytes_in: int = 0
    waits: Mapping[QueryLimit, int] = field(default_factory=dict)
    waiting_queries: int = 0
    waiting_fetches: int = 0
    connections: int = 0
    connections_max: int = 0
    all_lookups_used: bool = False
    store_waiting: int = 0
    store_waiting_max: int = 0
    store_busy_s: float = 0.0
    cpu_s: float = 0.0
    disk_free_bytes: int | None = None

    def total(self, *outcomes: CrawlOutcome) -> int:
        return sum(self.counts.get(each, 0) for each in outcomes)

    @property
    def discovered(self) -> int:
        """Number of discoveries. An infohash that is discovered again counts again."""
        return self.total(CrawlOutcome.SAMPLED, CrawlOutcome.ANNOUNCED, CrawlOutcome.WANTED)

    @property
    def tried(self) -> int:
        """Each retry of an infohash counts."""
        return self.total(CrawlOutcome.TRIED)

    @property
    def fetched(self) -> int:
        return self.total(CrawlOutcome.FETCHED_FROM_SAMPLER, CrawlOutcome.FETCHED_AFTER_LOOKUP)

    @property
    def peers_found(self) -> int:
        return self.fetched + self.total(CrawlOutcome.NO_METADATA)

    @property
    def stored(self) -> int:
        return self.total(CrawlOutcome.STORED)


@dataclass(frozen=True, slots=True)
class CrawlRates:
    """Infohashes per minute; queries and bytes per second."""

    discovered: float = 0.0
    tried: float = 0.0
    fetched: float = 0.0
    stored: float = 0.0
    queries_out_per_s: float = 0.0
    bytes_out_per_s: float = 0.0
    bytes_in_per_s: float = 0.0


def rates_between(before: CrawlSnapshot, now: CrawlSnapshot) -> CrawlRates:
    """Return the mean rates between two snapshots."""
    elapsed_s = now.at - before.at
    if elapsed_s <= 0:
        return CrawlRates()
    per_minute = 60 / elapsed_s
    return CrawlRates(
        (now.discovered - before.discovered) * per_minute,
        (now.tried - before.tried) * per_minute,
        (now.fetched - before.fetched) * per_minute,
        (now.stored - before.stored) * per_minute,
        (now.queries_out - before.queries_out) / elapsed_s,
        (now.bytes_out - before.bytes_out) / elapsed_s,
        (now.bytes_in - before.bytes_in) / elapsed_s,
    )


class CrawlHistory:
    """The snapshots of a run, evenly spaced. Beyond POINTS_MAX, every other one is dropped."""

    def __init__(self) -> None:
        self.points: list[CrawlSnapshot] = []
        self._every = 1
        self._added = 0
        self._recent: deque[CrawlSnapshot] = deque()

    def add(self, snapshot: CrawlSnapshot) -> None:
        if self._added % self._every == 0:
            self.points.append(snapshot)
            if len(self.points) > POINTS_MAX:
                self.points = self.points[::2]
                self._every *= 2
        self._added += 1
        self._recent.append(snapshot)
        while len(self._recent) > 2 and self._recent[1].at <= snapshot.at - RATE_OVER_S:
            self._recent.popleft()

    def rates(self) -> list[tuple[CrawlSnapshot, CrawlRates]]:
        """Return all points but the first, with their rates over at least RATE_OVER_S, or since the first point."""
        found, start = [], 0
        for index, point in enumerate(self.points[1:], 1):
            while start < index - 1 and self.points[start + 1].at <= point.at - RATE_OVER_S:
                start += 1
            found.append((point, rates_between(self.points[start], point)))
        return found

    def minute_ago(self, now: CrawlSnapshot) -> CrawlSnapshot:
        """Return a snapshot that is at least RATE_OVER_S old, or the oldest one."""
        before = [each for each in self._recent if each.at <= now.at - RATE_OVER_S]
        return before[-1] if before else self._recent[0] if self._recent else now
