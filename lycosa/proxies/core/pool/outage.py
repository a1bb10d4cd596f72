"""Where proxies flow, and where there is a drought. Times are in unix seconds.

`WaitQueueStats` says of each target how long to wait for one: where some were lent lately the next one comes soon, and who waits
keeps its place; where none was, it asks now and then, so that other targets have the places. More than are lent in
QUEUE_S do not wait, either: the places in which they waited are used for targets whose proxies are free.

`Outage` is of all targets: how long no proxy that works is to be had, and what then. It is told once, and at last is
too long. That one was lent says nothing, for it may be as dead as the others: who got an answer through one ends it.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

NO_PROXY = "no proxy"
"""Why a crawl ends for which it was too long."""

FLOWS_S = 10.0
"""Where a proxy was lent in so many seconds they flow, and who wants one waits for so long."""

DRY_WAIT_S = 1.0
"""Elsewhere for so long."""

QUEUE_S = 0.1
"""As many wait as are lent in this time; who comes further comes again in half of it."""

QUEUE_MIN = 8
"""But so many in any case: a pool on a server takes a while to answer."""

RATE_S = 1.0
"""How many are lent is counted for so long."""

AGAIN_MIN_S, AGAIN_MAX_S = 1.0, 30.0
"""Who got none asks again after a quarter of the time that none was lent, within these bounds."""

TARGETS_MAX = 10_000
"""Targets that are remembered; of more, the one that nobody asked for longest is forgotten."""


@dataclass(slots=True)
class TargetWaitStats:
    """Of one target: one was lent at `since`, or is asked for since then if `any_lent` is False.

    `count` were lent since `began`, and `per_s` a second before that. `waiting`: how many, by what they wish.
    """

    since: float
    began: float
    any_lent: bool = False
    count: int = 0
    per_s: float = 0.0
    waiting: Counter[Hashable] = field(default_factory=Counter)

    def rate(self, now: float) -> float:
        """Return how many are lent in a second, 0 when none was lent lately."""
        return self.per_s if now - self.began < 2 * RATE_S else 0.0

    def counted(self, now: float) -> None:
        """One more is lent."""
        self.count += 1
        if now - self.began >= RATE_S:
            self.per_s, self.began, self.count = self.count / (now - self.began), now, 0


class WaitQueueStats:
    """When a proxy was lent last, by target, or when it was first asked for; and how many wait for one."""

    def __init__(self) -> None:
        self._flows: OrderedDict[str, TargetWaitStats] = OrderedDict()

    def lease_granted(self, target: str, now: float) -> None:
        """One was lent."""
        flow = self._of(target, now)
        flow.since, flow.any_lent = now, True
        flow.counted(now)

    def wait_s(self, target: str, now: float) -> float:
        """Return for how long to wait for one."""
        flow = self._flows.get(target)
        return FLOWS_S if flow is not None and flow.any_lent and now - flow.since <= FLOWS_S else DRY_WAIT_S

    def has_room(self, target: str, request: Hashable, now: float) -> bool:
        """Whether another one may wait who wishes the same."""
        flow = self._flows.get(target)
        return flow is None or flow.waiting[request] < max(QUEUE_MIN, flow.rate(now) * QUEUE_S)

    @contextmanager
    def waiting(self, target: str, request: Hashable, now: float) -> Iterator[None]:
        """Count one who waits."""
        waiting = self._of(target, now).waiting
        waiting[request] += 1
        try:
            yield
        finally:
            waiting[request] -= 1
            if not waiting[request]:
                del waiting[request]

    def again_s(self, target: str, began: float, now: float) -> float:
        """None came. Return when to ask again; `began` is when this one did."""
        return min(max((now - self._of(target, began).since) / 4, AGAIN_MIN_S), AGAIN_MAX_S)

    def _of(self, target: str, now: float) -> TargetWaitStats:
        flow = self._flows.get(target)
        if flow is None:
            flow = self._flows[target] = TargetWaitStats(now, now)
        self._flows.move_to_end(target)
        if len(self._flows) > TARGETS_MAX:
            self._flows.popitem(last=False)
        return flow


class OutageStatus(NamedTuple):
    """It lasts for `for_s`, and `left_s` more at most, None: for ever. `new`: nobody was told yet."""

    for_s: float
    left_s: float | None
    new: bool


@dataclass(slots=True)
class Outage:
    """It is too long after `most_s` seconds, None: never.

    `since` is when somebody began to wait in vain, 0 for none, `worked_at` when one worked last.
    """

    most_s: float | None
    since: float = 0.0
    worked_at: float = 0.0
    told: bool = False

    def none(self, began: float, now: float) -> OutageStatus:
        """Somebody has waited since `began`, and got none."""
        if not self.since:
            self.since = max(began, self.worked_at)
        new = not self.told and self.worked_at <= began  # else the others get on, and this one does not
        self.told |= new
        for_s = max(0.0, now - self.since)
        return OutageStatus(for_s, None if self.most_s is None else max(0.0, self.most_s - for_s), new)

    def worked(self, now: float) -> float:
        """Somebody got an answer through one. Return how long it had lasted, if that was told, else 0."""
        lasted_s = now - self.since if self.told else 0.0
        self.since, self.worked_at, self.told = 0.0, now, False
        return lasted_s
