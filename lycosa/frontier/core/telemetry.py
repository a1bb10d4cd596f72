"""What the workers of a crawl tell of themselves, and what is made of it: sums, rates, how long it will take.

A worker reports its counters about once a second, as they are since it began (`WorkerReport`). Whoever keeps reports
adds what is new in each to the totals of the crawl, so that these hold what all workers did that ever took part: of one
that was killed, what it had reported. Rates are made by whoever reads, from two reports of a worker, by its own clock.

A page that is fetched again, since its worker died before it was committed, counts twice here, and once among what the
frontier says is done.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from lycosa.frontier.core.model import HostView

CRAWLING, WAITING, PAUSED, ENDING, ENDED, LOST = "crawling", "waiting", "paused", "ending", "ended", "lost"
"""What a worker is at. WAITING: it was lent nothing for a while. LOST: it ended without a word, as readers find out."""

STATES = (CRAWLING, WAITING, PAUSED, ENDING, ENDED, LOST)

COUNTS = ("pages", "unchanged", "items", "dropped", "bytes", "failures", "cpu_ms")
"""What every report counts. `failures` are visits that failed, whether they are tried again or not."""

STAT_PREFIX = "stats/"
"""What stands before the name of a stat (`crawler.stats`) among the counts."""

STATS_MAX = 200
"""Stats in a report: the first ones, parts of whose names may come from the network."""

NAME_MAX = 100
"""Characters in the name of a stat that is reported."""

NOT_SUMMED = frozenset(
    {"request_depth_max", "memusage/startup", "memusage/max", "memusage/limit_reached", "memusage/warning_reached"}
)
"""Stats whose sum means nothing."""

REASON_MAX = 200
RATE_WINDOW_S = 5.0
"""Rates are those of the last seconds."""


class WorkerReport(msgspec.Struct, frozen=True):
    """What one worker tells: where it runs, what it is at, and its counters since it began, `uptime_s` ago.

    `under_way` of at most `concurrency` requests are in work.
    """

    machine: str
    pid: int
    version: str
    uptime_s: float
    state: str
    why: str = ""
    under_way: int = 0
    concurrency: int = 0
    memory_bytes: int = 0
    counts: dict[str, int] = {}


class WorkerView(msgspec.Struct, frozen=True):
    """A worker as the others see it: heard `silent_s` ago, with so many URLs `leased`. `report` may be yet to come."""

    name: str
    state: str
    silent_s: float = 0.0
    leased: int = 0
    report: WorkerReport | None = None

    def tells(self, name: str) -> bool:
        """Tell whether it counts this, as far as it has reported."""
        return self.report is None or name in self.report.counts


class CrawlView(msgspec.Struct, frozen=True):
    """A crawl at `at` (unix seconds, by the clock of who keeps it): who takes part, who did until lately, the totals.

    `frontier` counts URLs by state, `hosts` are some of those with the most to do.
    """

    name: str
    at: float
    workers: list[WorkerView] = []
    gone: list[WorkerView] = []
    totals: dict[str, int] = {}
    frontier: dict[str, int] = {}
    hosts: list[HostView] = []

    @property
    def unfinished(self) -> int:
        """URLs that are not done for good."""
        return sum(self.frontier.get(name, 0) for name in ("queued", "leased", "delayed", "uncommitted", "outgoing"))

    def tells(self, name: str) -> bool:
        """Tell whether all workers count this: else nobody can tell the total."""
        return all(worker.tells(name) for worker in self.workers)


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WorkerReport).decode


def decode(data: bytes) -> WorkerReport | None:
    """Return a report; None for bytes that are none, as another version may have sent."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def summable_stats(stats: Mapping[Any, Any]) -> dict[str, int]:
    """Return those stats of a run that can be added up, whole numbers, the first of them if there are too many."""
    found: dict[str, int] = {}
    for name, value in stats.items():
        if not isinstance(name, str):  # users count under whatever can be a key
            continue
        if type(value) is int and name not in NOT_SUMMED and len(name) <= NAME_MAX and abs(value) < 1 << 53:
            found[STAT_PREFIX + name] = value
            if len(found) >= STATS_MAX:
                break
    return found


def sum_counts(reports: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of counts."""
    total: Counter[str] = Counter()
    for counts in reports:
        total.update(counts)
    return dict(total)


def rates(before: WorkerReport, after: WorkerReport) -> dict[str, float]:
    """Return the counts by second between two reports of a worker; nothing when no time passed between them."""
    took_s = after.uptime_s - before.uptime_s
    if took_s <= 0:
        return {}
    return {name: (after.counts.get(name, 0) - before.counts.get(name, 0)) / took_s for name in COUNTS}


class Rates:
    """The rates of workers, from the views of a crawl as they come; of who takes part no more, it forgets."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        self._window_s = window_s
        self._marks: dict[str, deque[WorkerReport]] = {}

    def note(self, workers: Iterable[WorkerView]) -> None:
        """Take in what the workers report now."""
        marks: dict[str, deque[WorkerReport]] = {}
        for worker in workers:
            if worker.report is not None:
                mine = marks[worker.name] = self._marks.get(worker.name) or deque()
                if not mine or mine[-1].uptime_s < worker.report.uptime_s:
                    mine.append(worker.report)
                while len(mine) > 2 and mine[0].uptime_s < mine[-1].uptime_s - self._window_s:
                    mine.popleft()
        self._marks = marks

    def of(self, worker: str) -> dict[str, float]:
        """Return the rates of a worker; nothing as long as it has reported once only."""
        marks = self._marks.get(worker)
        return rates(marks[0], marks[-1]) if marks else {}

    def total(self) -> dict[str, float]:
        """Return the sums over all workers; nothing when of none there is a rate."""
        found: Counter[str] = Counter()
        for name in self._marks:
            found.update(self.of(name))
        return dict(found)


def page_count(counts: Mapping[str, float]) -> float:
    """Return the pages among counts or rates: those that had not changed are pages too."""
    return counts.get("pages", 0) + counts.get("unchanged", 0)


def pages_done(reasons: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of pages among why URLs are done."""
    fetched = sum(count for reason, count in reasons.items() if len(reason) == 3 and reason.startswith("2"))
    return {"pages": fetched, "unchanged": reasons.get("unchanged", 0)}


def remaining_s(view: CrawlView, rate: Mapping[str, float]) -> float | None:
    """Return the seconds that what is known of the crawl will take at this rate; None when nobody can know.

    It is no end: pages lead to more pages. What sleeps and what its hosts hold back takes longer.
    """
    speed = page_count(rate)
    return view.unfinished / speed if speed > 0 and view.unfinished else None
