"""Reports of the workers of a crawl, and what is computed from them: sums, rates, remaining time.

About once a second, a worker reports its counters since its start. The server adds the increase to the totals of the
crawl, which therefore include former workers. A killed worker counts up to its last report. Rates are computed from two
reports of a worker, by the worker's own clock.

A page fetched again because its worker died before the commit counts twice here, but once among the frontier's done
URLs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from lycosa.frontier.core.model import HostView

CRAWLING, WAITING, PAUSED, ENDING, ENDED, LOST = "crawling", "waiting", "paused", "ending", "ended", "lost"
"""WAITING: without a lease for a while. LOST: stopped without a last report."""

STATES = (CRAWLING, WAITING, PAUSED, ENDING, ENDED, LOST)

COUNTS = ("pages", "unchanged", "items", "dropped", "bytes", "failures", "cpu_ms")
"""`failures` counts failed visits, retried or not."""

STAT_PREFIX = "stats/"
"""The prefix of stats (`crawler.stats`) among the counters."""

STATS_MAX = 200
"""Names of stats may come from the network, so a report has at most this many. The first ones are kept."""

NAME_MAX = 100

NOT_SUMMED = frozenset(
    {"request_depth_max", "memusage/startup", "memusage/max", "memusage/limit_reached", "memusage/warning_reached"}
)

REASON_MAX = 200
RATE_WINDOW_S = 5.0


class WorkerReport(msgspec.Struct, frozen=True):
    """The state of a worker, and its counters since its start `uptime_s` ago.

    `under_way` is the number of requests being processed, at most `concurrency`. `why` explains the state.
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


class RunProgress(NamedTuple):
    """The work of all workers of a shared crawl since its run began, `age_s` ago.

    A run begins when a worker joins a crawl without workers. `counts` are the increases of the counters since then.
    `item_age_s` is the time since the last item, `pages_at_item` the number of pages before it. Before the first item,
    the start of the run counts as an item.
    """

    age_s: float
    item_age_s: float
    pages_at_item: int
    counts: dict[str, int]


class WorkerView(msgspec.Struct, frozen=True):
    """`silent_s` is the time since the worker's last call; `report` is None before the first report."""

    name: str
    state: str
    silent_s: float = 0.0
    leased: int = 0
    report: WorkerReport | None = None

    def has_count(self, name: str) -> bool:
        """Whether the worker reports this counter; True before its first report."""
        return self.report is None or name in self.report.counts


class CrawlView(msgspec.Struct, frozen=True):
    """A crawl at `at` (unix seconds, by the clock of its server or owner).

    `former_workers` left recently. `frontier` counts URLs by state; `hosts` are some of the busiest.
    """

    name: str
    at: float
    workers: list[WorkerView] = []
    former_workers: list[WorkerView] = []
    totals: dict[str, int] = {}
    frontier: dict[str, int] = {}
    hosts: list[HostView] = []

    @property
    def unfinished(self) -> int:
        return sum(self.frontier.get(name, 0) for name in ("queued", "leased", "delayed", "uncommitted", "outgoing"))

    def has_count(self, name: str) -> bool:
        """Whether all workers report this counter; otherwise its total is unknown."""
        return all(worker.has_count(name) for worker in self.workers)


encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(WorkerReport).decode


def decode(data: bytes) -> WorkerReport | None:
    """Return None for an invalid report (perhaps from another version)."""
    try:
        return _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def summable_stats(stats: Mapping[Any, Any]) -> dict[str, int]:
    """The integer stats that can be summed, at most the first STATS_MAX."""
    found: dict[str, int] = {}
    for name, value in stats.items():
        if not isinstance(name, str):  # users may count under any hashable key
            continue
        if type(value) is int and name not in NOT_SUMMED and len(name) <= NAME_MAX and abs(value) < 1 << 53:
            found[STAT_PREFIX + name] = value
            if len(found) >= STATS_MAX:
                break
    return found


def sum_counts(reports: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sums of the counters."""
    total: Counter[str] = Counter()
    for counts in reports:
        total.update(counts)
    return dict(total)


def rates(before: WorkerReport, after: WorkerReport) -> dict[str, float]:
    """Counts per second between two reports of a worker; empty if no time has passed."""
    elapsed_s = after.uptime_s - before.uptime_s
    if elapsed_s <= 0:
        return {}
    return {name: (after.counts.get(name, 0) - before.counts.get(name, 0)) / elapsed_s for name in COUNTS}


class Rates:
    """The rates of workers, from successive views of a crawl. Workers that left are forgotten."""

    def __init__(self, window_s: float = RATE_WINDOW_S) -> None:
        self._window_s = window_s
        self._reports: dict[str, deque[WorkerReport]] = {}

    def add(self, workers: Iterable[WorkerView]) -> None:
        reports: dict[str, deque[WorkerReport]] = {}
        for worker in workers:
            if worker.report is not None:
                own = reports[worker.name] = self._reports.get(worker.name) or deque()
                if not own or own[-1].uptime_s < worker.report.uptime_s:
                    own.append(worker.report)
                while len(own) > 2 and own[0].uptime_s < own[-1].uptime_s - self._window_s:
                    own.popleft()
        self._reports = reports

    def of(self, worker: str) -> dict[str, float]:
        """The rates of a worker; empty before its second report."""
        reports = self._reports.get(worker)
        return rates(reports[0], reports[-1]) if reports else {}

    def total(self) -> dict[str, float]:
        """Return the sums over all workers; empty if none has rates."""
        found: Counter[str] = Counter()
        for name in self._reports:
            found.update(self.of(name))
        return dict(found)


def page_count(counts: Mapping[str, float]) -> float:
    """Return the number of pages, including unchanged ones."""
    return counts.get("pages", 0) + counts.get("unchanged", 0)


def pages_done(reasons: Mapping[str, int]) -> dict[str, int]:
    """Compute the counters `pages` and `unchanged` from the reasons of done URLs."""
    fetched = sum(count for reason, count in reasons.items() if len(reason) == 3 and reason.startswith("2"))
    return {"pages": fetched, "unchanged": reasons.get("unchanged", 0)}


def remaining_s(view: CrawlView, rate: Mapping[str, float]) -> float | None:
    """The seconds that the known URLs take at this rate; None if unknown.

    A crawl may take longer: pages lead to more pages, and delayed URLs and slow hosts wait.
    """
    speed = page_count(rate)
    return view.unfinished / speed if speed > 0 and view.unfinished else None
