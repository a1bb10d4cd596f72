"""A read-only view of a crawl in Redis, for `lycosa top`: workers, speed, remaining work."""

from __future__ import annotations

import asyncio
from heapq import nlargest
from typing import Any

from lycosa.frontier.core.model import HostView
from lycosa.frontier.core.telemetry import ENDED, LOST, WAITING, CrawlView, WorkerReport, WorkerView, decode, sum_counts
from lycosa.frontier.redis.layout import shown_worker
from lycosa.frontier.redis.scripts import SILENT_S
from lycosa.frontier.redis.worker.partition import STATES
from lycosa.frontier.redis.worker.session import Session

HOSTS_SAMPLED = 200
"""Number of hosts of each kind (ready, waiting, leased) to sample, besides the busiest hosts of the previous view."""

HOSTS_SHOWN = 10


class Watcher:
    """Watches a crawl through a session that has not joined it as a worker."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._busiest: list[str] = []

    async def view(self) -> CrawlView | None:
        """Return None if the crawl no longer exists. Takes one round trip to each partition."""
        first, *others = self.session.partitions
        share = -(-HOSTS_SAMPLED // len(self.session.partitions))
        _, *reply = await self.session.operate(first, "watch", share, 0, *self._busiest)
        if not reply[1]:
            return None
        workers = [name for name, *_ in reply[3]]
        arguments = (share, len(workers), *workers, *self._busiest)
        more = await asyncio.gather(*(self.session.operate(each, "watch", *arguments) for each in others))
        view = _view(self.session.crawl, [reply, *(each[1:] for each in more)])
        self._busiest = [host.host for host in view.hosts]
        return view


def _view(name: str, replies: list[list[Any]]) -> CrawlView:
    time, _, _, known, reports, ended, totals, _ = replies[0]
    now = float(time)
    last_reports = {worker: decode(report) for worker, report in _pairs(reports)}
    leased = sum_counts({worker: int(leases)} for reply in replies for worker, _, leases in reply[3])
    alive: list[WorkerView] = []
    former: list[WorkerView] = []
    for worker, alive_at, _ in known:
        silent_s, report = now - float(alive_at or now), last_reports.pop(worker, None)
        state = LOST if silent_s > SILENT_S else report.state if report else WAITING
        view = WorkerView(_shown(worker), state, max(0.0, silent_s), leased[worker], report)
        (former if state == LOST else alive).append(view)
    former += [_ended_worker(worker, now - float(when), last_reports.get(worker)) for worker, when in _pairs(ended)]
    return CrawlView(
        name,
        now,
        sorted(alive, key=lambda each: _join_order(each.name)),
        sorted(former, key=lambda each: each.silent_s),
        {field.decode(errors="replace"): int(count) for field, count in _pairs(totals)},
        _counts(replies),
        _hosts(replies),
    )


def _ended_worker(worker: bytes, silent_s: float, report: WorkerReport | None) -> WorkerView:
    state = ENDED if report and report.state == ENDED else LOST
    return WorkerView(_shown(worker), state, max(0.0, silent_s), 0, report)


def _shown(worker: bytes) -> str:
    return shown_worker(worker.decode(errors="replace"))


def _join_order(worker: str) -> tuple[int, str]:
    number = worker.rpartition("#")[2]
    return (int(number) if number.isdecimal() else 0, worker)


def _counts(replies: list[list[Any]]) -> dict[str, int]:
    counts = dict.fromkeys(STATES, 0)
    for reply in replies:
        for field, count in _pairs(reply[2]):
            counts[field.decode().partition("|")[0]] += int(count)
    return counts


def _hosts(replies: list[list[Any]]) -> list[HostView]:
    views = (
        HostView(name.decode(errors="replace"), int(queued), int(in_flight), float(ready_at), delay_s=float(delay))
        for reply in replies
        for name, queued, in_flight, ready_at, delay in reply[7]
    )
    return nlargest(HOSTS_SHOWN, views, key=lambda view: (view.queued, view.in_flight))


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
