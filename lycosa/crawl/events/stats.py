"""What a crawl counts, and how it tells: snapshots while it runs, a summary at the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lycosa.core.public import public
from lycosa.frontier.core.model import FrontierStats

RATE_WINDOW_S = 5.0
"""The rate shown is that of the last seconds."""

NOTES_MAX = 10


@public
class Snapshot(NamedTuple):
    """The crawl now.

    `pages`, `unchanged` (pages, not among those), `items`, `dropped`, `bytes`, `elapsed_s` and `rate` (of both kinds of
    pages, by second) are of this run, the rest of the whole crawl.
    `waiting_until` (unix seconds) says that nothing can be done before, `paused` what must change first.
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
    """Visits that failed, whether they are tried again or not."""
    lent: int = 0
    known: int = 0
    """Links of which memory alone could tell that they are no news."""
    skipped: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    _marks: deque[tuple[float, int]] = field(default_factory=deque)

    def skip(self, reason: str) -> None:
        """Count a link that was not followed."""
        self.skipped[reason] = self.skipped.get(reason, 0) + 1

    def note(self, line: str) -> None:
        """Keep a hint for the end, once, and not too many."""
        if line not in self.notes and len(self.notes) < NOTES_MAX:
            self.notes.append(line)

    def snapshot(self, frontier: FrontierStats, now: float) -> Snapshot:
        """Return the state of the crawl at `now`."""
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
            self._rate(now),
            unchanged=self.unchanged,
        )

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
    """How a crawl ended, and whether it was `resumed`: had earlier runs.

    `reasons` and `dead_reasons` count URLs of the whole crawl, `skipped` links of this run that were not followed;
    `dead` names the first dead URLs; `notes` are hints, a line each. `idle_until` (unix seconds) is when the rest is
    due, in a crawl that ended at `ended_at` because it was idle, else 0. `closed` says why the segment of the run
    takes no more, "" when it does; `closing` why a spider, or a condition of the settings, ended the crawl. `stats` are
    those of this run, under Scrapy's names (`stats_collector.py`). `shared` counts what all workers of a
    shared crawl did.
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
    idle_until: float = 0.0
    ended_at: float = 0.0
    resumed: bool = False
    items_path: str = ""
    state_path: str = ""
    closed: str = ""
    closing: str = ""
    stats: Mapping[str, Any] = field(default_factory=dict)
    shared: Mapping[str, int] = field(default_factory=dict)
