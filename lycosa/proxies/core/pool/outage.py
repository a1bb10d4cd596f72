"""How long to wait for a proxy, and when a crawl must end because none works. Times in unix seconds.

`WaitQueueStats` says for each target how long to wait: where proxies were leased lately the next one comes soon, so a
request waits and keeps its place; elsewhere it only asks now and then, so that other targets can use the place. At most
as many requests wait as proxies are leased in QUEUE_S: more places are of more use to targets whose proxies are free.

`Outage` is about all targets: how long no working proxy has been available. It is reported once, and the crawl ends
when it lasts too long. A lease does not end it, as the leased proxy may be dead, too; only a response through one does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict

NO_PROXY = "no proxy"
"""The reason for the end of a crawl after an outage that lasted too long."""

RECENT_WAIT_S = 10.0
"""The wait for a target with a lease in this time."""

IDLE_WAIT_S = 1.0
"""The wait for any other target."""

QUEUE_S = 0.1
"""As many requests wait as proxies are leased in this time; a further one retries after half of it."""

QUEUE_MIN = 8
"""But at least so many: a pool on a server takes a while to respond."""

RATE_S = 1.0
"""The window in which leases are counted."""

RETRY_MIN_S, RETRY_MAX_S = 1.0, 30.0
"""After a wait in vain a request retries after a quarter of the time without a lease, within these bounds."""

TARGETS_MAX = 10_000
"""Targets; beyond that the least recently used one is forgotten."""


@dataclass(slots=True)
class TargetWaitStats:
    """The last lease of a target was at `since`; without any (`any_leased`), it has been waited for since then.

    `count` leases since `began`, and `per_s` in the window before. `waiting`: how many wait, by what they ask for.
    """

    since: float
    began: float
    any_leased: bool = False
    count: int = 0
    per_s: float = 0.0
    waiting: Counter[Hashable] = field(default_factory=Counter)

    def rate(self, now: float) -> float:
        """Return the leases per second, 0 when there was none lately."""
        return self.per_s if now - self.began < 2 * RATE_S else 0.0

    def count_lease(self, now: float) -> None:
        self.count += 1
        if now - self.began >= RATE_S:
            self.per_s, self.began, self.count = self.count / (now - self.began), now, 0


class WaitQueueStats:
    """Leases and waiting requests of each target. `which` stands for what a request asks for."""

    def __init__(self) -> None:
        self._targets: RecentDict[str, TargetWaitStats] = RecentDict(TARGETS_MAX)

    def lease_granted(self, target: str, now: float) -> None:
        stats = self._of(target, now)
        stats.since, stats.any_leased = now, True
        stats.count_lease(now)

    def wait_s(self, target: str, now: float) -> float:
        """Return how long to wait for a proxy."""
        stats = self._targets.get(target)
        is_recent = stats is not None and stats.any_leased and now - stats.since <= RECENT_WAIT_S
        return RECENT_WAIT_S if is_recent else IDLE_WAIT_S

    def has_room(self, target: str, which: Hashable, now: float) -> bool:
        """Whether one more request for the same may wait."""
        stats = self._targets.get(target)
        return stats is None or stats.waiting[which] < max(QUEUE_MIN, stats.rate(now) * QUEUE_S)

    @contextmanager
    def waiting(self, target: str, which: Hashable, now: float) -> Iterator[None]:
        """Count a request as waiting while the block runs."""
        waiting = self._of(target, now).waiting
        waiting[which] += 1
        try:
            yield
        finally:
            waiting[which] -= 1
            if not waiting[which]:
                del waiting[which]

    def retry_s(self, target: str, began: float, now: float) -> float:
        """Return when to retry after a wait in vain since `began`."""
        return min(max((now - self._of(target, began).since) / 4, RETRY_MIN_S), RETRY_MAX_S)

    def _of(self, target: str, now: float) -> TargetWaitStats:
        stats = self._targets[target] = self._targets.get(target) or TargetWaitStats(now, now)
        return stats


class OutageStatus(NamedTuple):
    """The outage lasts for `for_s`, and at most `left_s` more, None: for ever. `new`: it is not reported yet."""

    for_s: float
    left_s: float | None
    new: bool


@dataclass(slots=True)
class Outage:
    """An outage may last `most_s` seconds, None: for ever.

    `since`: when the first request began to wait in vain, 0 for none. `worked_at`: when a proxy last worked.
    """

    most_s: float | None
    since: float = 0.0
    worked_at: float = 0.0
    reported: bool = False

    def extend(self, began: float, now: float) -> OutageStatus:
        """Note that a request has waited since `began` and got no proxy."""
        if not self.since:
            self.since = max(began, self.worked_at)
        new = not self.reported and self.worked_at <= began  # else other requests get proxies that work
        self.reported |= new
        for_s = max(0.0, now - self.since)
        return OutageStatus(for_s, None if self.most_s is None else max(0.0, self.most_s - for_s), new)

    def end(self, now: float) -> float:
        """Note a response through a proxy. Return how long the outage lasted if it was reported, else 0."""
        lasted_s = now - self.since if self.reported else 0.0
        self.since, self.worked_at, self.reported = 0.0, now, False
        return lasted_s
