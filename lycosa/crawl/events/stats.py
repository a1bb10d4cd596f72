"""The counters of a run, its snapshots and its summary."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lycosa.core.public import public
from lycosa.crawl.diagnostics.bug_log import Bug, BugLog
from lycosa.frontier.core.model import FrontierStats

RATE_WINDOW_S = 5.0

ETA_WINDOW_S, ETA_AFTER_S = 30.0, 3.0
"""The remaining time is estimated from the last ETA_WINDOW_S seconds, and only after ETA_AFTER_S seconds."""

NOTES_MAX = 10


@public
class Snapshot(NamedTuple):
    """The state of a crawl at one point in time.

    `pages`, `unchanged` (pages not counted in `pages`), `items`, `dropped`, `bytes`, `elapsed_s` and `rate` (pages and
    unchanged pages per second) refer to this run, the others to the whole crawl.

    `waiting_until`: when the next record is due if the crawl is idle (unix seconds), else 0. `paused`: why the crawl is
    paused, or "". `brake`: why no host with queued URLs can be contacted now, or "". `eta_s`: seconds until the queue
    is empty if it keeps shrinking as now; 0 if it does not shrink. `least_s`: minimum seconds to fetch the queued
    URLs, given the delays and blocks of their hosts. `blocked_s`: seconds for which all these hosts are still blocked.
    `free_rate`: the rate before they were blocked.
    """

    pages: int = 0
    items: int = 0
    dropped: int = 0
    queued: int = 0
    leased: int = 0
    delayed: int = 0
    done: int = 0
    dead: int = 0
    hosts: int = 0
    bytes: int = 0
    elapsed_s: float = 0.0
    rate: float = 0.0
    waiting_until: float = 0.0
    unchanged: int = 0
    paused: str = ""
    brake: str = ""
    eta_s: float = 0.0
    least_s: float = 0.0
    blocked_s: float = 0.0
    free_rate: float = 0.0


@dataclass(slots=True)
class RunStats:
    """The counters of one run. Times are unix seconds."""

    started_at: float
    pages: int = 0
    unchanged: int = 0
    items: int = 0
    dropped: int = 0
    bytes: int = 0
    retries: int = 0
    failures: int = 0
    """Failed visits, retried or not."""
    leased: int = 0
    known_links: int = 0
    """Links dropped because the look-up in memory already knew them. The frontier may know others, too."""
    skipped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    bugs: BugLog = field(default_factory=BugLog)
    _free_rate: float = 0.0
    _marks: deque[tuple[float, int]] = field(default_factory=deque)
    _unfinished: deque[tuple[float, int]] = field(default_factory=deque)

    def skip(self, reason: str) -> None:
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def note(self, line: str) -> None:
        """Add a hint to the summary, unless it is there already or there are NOTES_MAX hints."""
        if line not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(line)

    def snapshot(self, frontier: FrontierStats, now: float) -> Snapshot:
        rate, blocked_s = self._rate(now), max(0.0, frontier.blocked_until - now)
        self._free_rate = self._free_rate if blocked_s else rate
        return Snapshot(
            self.pages,
            self.items,
            self.dropped,
            frontier.queued,
            frontier.leased,
            frontier.delayed,
            frontier.done,
            frontier.dead,
            frontier.hosts,
            self.bytes,
            now - self.started_at,
            rate,
            unchanged=self.unchanged,
            brake=frontier.brake if frontier.queued else "",
            eta_s=self._eta_s(frontier.unfinished, now),
            least_s=frontier.work_s,
            blocked_s=blocked_s,
            free_rate=self._free_rate,
        )

    def _eta_s(self, unfinished: int, now: float) -> float:
        """Estimate the seconds until the queue is empty from how fast it shrinks; 0 if it does not shrink."""
        self._unfinished.append((now, unfinished))
        while self._unfinished[0][0] < now - ETA_WINDOW_S:
            self._unfinished.popleft()
        then, before = self._unfinished[0]
        if now - then < ETA_AFTER_S or before <= unfinished:
            return 0.0
        return unfinished * (now - then) / (before - unfinished)

    def _rate(self, now: float) -> float:
        answers = self.pages + self.unchanged
        self._marks.append((now, answers))
        while len(self._marks) > 1 and self._marks[0][0] < now - RATE_WINDOW_S:
            self._marks.popleft()
        then, before = self._marks[0] if len(self._marks) > 1 else (self.started_at, 0)
        return (answers - before) / (now - then) if now > then else 0.0


@public
@dataclass(frozen=True, slots=True)
class Summary:
    """How a run ended, and its counts.

    `resumed`: whether the crawl had earlier runs. `reasons` and `dead_reasons` count URLs of the whole crawl, `skipped`
    the links of this run that were not followed. `dead` lists the first dead URLs with their reasons. `notes` are
    one-line hints. `bugs` are the failures in the user's code in this run, the most frequent first.

    If the run ended because it was idle, `idle_until` is when the next record is due, else 0. `idle_until` and
    `ended_at` are unix seconds. `overwritten`: whether the run started afresh (-O), as the next run with the same
    options would. `closed`: why the segment of the run accepts no more URLs, or "". `closing`: why a spider or a
    condition closed the crawl, or "". `stats` are under Scrapy's names (`stats_collector.py`). `shared` has the
    counters of a shared crawl, added up over all workers.
    """

    finished: bool
    interrupted: bool
    nothing_to_do: bool
    snapshot: Snapshot
    reasons: Mapping[str, int] = field(default_factory=dict)
    dead_reasons: Mapping[str, int] = field(default_factory=dict)
    skipped: Mapping[str, int] = field(default_factory=dict)
    dead: Sequence[tuple[str, str]] = ()
    notes: Sequence[str] = ()
    bugs: Sequence[Bug] = ()
    idle_until: float = 0.0
    ended_at: float = 0.0
    resumed: bool = False
    items_path: str = ""
    overwritten: bool = False
    state_path: str = ""
    closed: str = ""
    closing: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)
