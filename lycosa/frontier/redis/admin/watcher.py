"""A crawl in Redis as it looks from outside: who takes part, how fast, what is left. Joins nothing, changes nothing."""

from __future__ import annotations

import asyncio
from heapq import nlargest
from typing import Any

from lycosa.frontier.core.model import HostView
from lycosa.frontier.core.telemetry import ENDED, LOST, WAITING, CrawlView, WorkerReport, WorkerView, decode, sum_counts
from lycosa.frontier.redis.worker.heartbeat import SILENT_S
from lycosa.frontier.redis.worker.partition import COUNTED
from lycosa.frontier.redis.worker.session import Session

HOSTS_LOOKED = 200
"""Of hosts of each kind (ready, waiting, asked now) so many are looked at, at random, and the busiest of before."""

HOSTS_SHOWN = 10


class Watcher:
    """Watches the crawl of a session that has not joined."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._busiest: list[str] = []

    async def view(self) -> CrawlView | None:
        """Return the crawl as it is now, None when it is not there any more: one round trip to each partition."""
        first, *others = self.session.partitions
        share = -(-HOSTS_LOOKED // len(self.session.partitions))
        _, *said = await self.session.read(first, "look", share, 0, *self._busiest)
        if not said[1]:
            return None
        workers = [name for name, *_ in said[3]]
        asked = (share, len(workers), *workers, *self._busiest)
        more = await asyncio.gather(*(self.session.read(each, "look", *asked) for each in others))
        view = _view(self.session.crawl, [said, *(told[1:] for told in more)])
        self._busiest = [host.host for host in view.hosts]
        return view


def _view(name: str, partitions: list[list[Any]]) -> CrawlView:
    at, _, _, known, reports, ended, totals, _ = partitions[0]
    now = float(at)
    told = {worker: decode(report) for worker, report in _pairs(reports)}
    leased = sum_counts({worker: int(lent)} for said in partitions for worker, _, lent in said[3])
    workers: list[WorkerView] = []
    gone: list[WorkerView] = []
    for worker, heard, _ in known:
        silent_s, report = now - float(heard or now), told.pop(worker, None)
        state = LOST if silent_s > SILENT_S else report.state if report else WAITING
        view = WorkerView(worker.decode(errors="replace"), state, max(0.0, silent_s), leased[worker], report)
        (gone if state == LOST else workers).append(view)
    gone += [_gone(worker, now - float(when), told.get(worker)) for worker, when in _pairs(ended)]
    return CrawlView(
        name,
        now,
        sorted(workers, key=lambda each: _order(each.name)),
        sorted(gone, key=lambda each: each.silent_s),
        {field.decode(errors="replace"): int(count) for field, count in _pairs(totals)},
        _counted(partitions),
        _hosts(partitions),
    )


def _gone(worker: bytes, silent_s: float, report: WorkerReport | None) -> WorkerView:
    state = ENDED if report and report.state == ENDED else LOST
    return WorkerView(worker.decode(errors="replace"), state, max(0.0, silent_s), 0, report)


def _order(worker: str) -> tuple[int, str]:
    """Workers are shown in the order in which they came."""
    number = worker.rpartition("#")[2]
    return (int(number) if number.isdecimal() else 0, worker)


def _counted(partitions: list[list[Any]]) -> dict[str, int]:
    found = dict.fromkeys(COUNTED.values(), 0)
    for said in partitions:
        for field, count in _pairs(said[2]):
            found[COUNTED[field.decode().partition("|")[0]]] += int(count)
    return found


def _hosts(partitions: list[list[Any]]) -> list[HostView]:
    views = (
        HostView(name.decode(errors="replace"), int(queued), int(busy), float(ready), delay_s=float(delay))
        for said in partitions
        for name, queued, busy, ready, delay in said[7]
    )
    return nlargest(HOSTS_SHOWN, views, key=lambda view: (view.queued, view.in_flight))


def _pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return list(zip(flat[::2], flat[1::2], strict=True))
