"""How long to wait for a proxy, and when a crawl must end because no proxy works. Times in unix seconds.

If a target got leases recently, a proxy will be free soon: a request waits and keeps its slot in the crawl. Otherwise
the request retries from time to time, and other targets use the slot. `WaitQueueStats` decides this, and how many
requests may wait.

`Outage` measures how long no target has had a working proxy. An outage is reported once; if it lasts too long, the
crawl ends. Only a response through a proxy ends an outage, because a leased proxy may be dead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict

NO_PROXY = "no proxy"
"""The finish reason of a crawl that ends because of an outage."""

RECENT_WAIT_S = 10.0
"""Seconds to wait for a proxy if the last lease of the target is at most this many seconds old."""

IDLE_WAIT_S = 1.0
"""Seconds to wait if the last lease is older, or there was none."""

QUEUE_S = 0.1
"""Requests of one target with the same session and tags may wait if the target serves all of them within this time, at
its current rate of leases. Further requests retry after half of this time."""

QUEUE_MIN = 8
"""This many requests may always wait, because a pool on a server takes a while to respond."""

RATE_S = 1.0
"""The window in which the leases of a target are counted."""

RETRY_MIN_S, RETRY_MAX_S = 1.0, 30.0
"""After a failed wait, a request retries after a quarter of the time since the last lease, within these bounds."""

TARGETS_MAX = 10_000
"""Beyond this number, the least recently used target is forgotten."""


@dataclass(slots=True)
class TargetWaitStats:
    """`since`: the time of the target's last lease; of the first wait if `any_leased` is False.

    `count`: leases since `began`, the start of the current window. `per_s`: leases per second in the previous window.
    `waiting`: the number of waiting requests, by what they ask for.
    """

    since: float
    began: float
    any_leased: bool = False
    count: int = 0
    per_s: float = 0.0
    waiting: Counter[Hashable] = field(default_factory=Counter)

    def rate(self, now: float) -> float:
        """Return the leases per second; 0 if there were none recently."""
        return self.per_s if now - self.began < 2 * RATE_S else 0.0

    def count_lease(self, now: float) -> None:
        self.count += 1
        if now - self.began >= RATE_S:
            self.per_s, self.began, self.count = self.count / (now - self.began), now, 0


class WaitQueueStats:
    """Leases and waiting requests of each target. `which` identifies what a request asks for."""

    def __init__(self) -> None:
        self._targets: RecentDict[str, TargetWaitStats] = RecentDict(TARGETS_MAX)

    def lease_granted(self, target: str, now: float) -> None:
        stats = self._of(target, now)
        stats.since, stats.any_leased = now, True
        stats.count_lease(now)

    def wait_s(self, target: str, now: float) -> float:
        stats = self._targets.get(target)
        is_recent = stats is not None and stats.any_leased and now - stats.since <= RECENT_WAIT_S
        return RECENT_WAIT_S if is_recent else IDLE_WAIT_S

    def has_room(self, target: str, which: Hashable, now: float) -> bool:
        stats = self._targets.get(target)
        return stats is None or stats.waiting[which] < max(QUEUE_MIN, stats.rate(now) * QUEUE_S)

    @contextmanager
    def waiting(self, target: str, which: Hashable, now: float) -> Iterator[None]:
        waiting = self._of(target, now).waiting
        waiting[which] += 1
        try:
            yield
        finally:
            waiting[which] -= 1
            if not waiting[which]:
                del waiting[which]

    def retry_s(self, target: str, began: float, now: float) -> float:
        """Return the seconds until the next try, after a wait since `began` failed."""
        return min(max((now - self._of(target, began).since) / 4, RETRY_MIN_S), RETRY_MAX_S)

    def _of(self, target: str, now: float) -> TargetWaitStats:
        stats = self._targets[target] = self._targets.get(target) or TargetWaitStats(now, now)
        return stats


class OutageStatus(NamedTuple):
    """An outage has lasted `for_s` and may last `left_s` more (None: forever). `new`: it has not been reported yet."""

    for_s: float
    left_s: float | None
    new: bool


@dataclass(slots=True)
class Outage:
    """The outage of all targets, if there is one. `max_s`: its maximum duration in seconds; None: unlimited.

    `since`: when the first request without a proxy began to wait, 0 for none. `worked_at`: when a proxy last worked.
    """

    max_s: float | None
    since: float = 0.0
    worked_at: float = 0.0
    reported: bool = False

    def extend(self, began: float, now: float) -> OutageStatus:
        """Record that a request has waited in vain since `began`."""
        if not self.since:
            self.since = max(began, self.worked_at)
        new = not self.reported and self.worked_at <= began  # False if other requests got working proxies meanwhile
        self.reported |= new
        for_s = max(0.0, now - self.since)
        return OutageStatus(for_s, None if self.max_s is None else max(0.0, self.max_s - for_s), new)

    def end(self, now: float) -> float:
        """Record a response through a proxy. Return the seconds of the outage; 0 if it was not reported."""
        lasted_s = now - self.since if self.reported else 0.0
        self.since, self.worked_at, self.reported = 0.0, now, False
        return lasted_s
