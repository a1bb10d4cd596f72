"""A frontier in memory: for a crawl nobody needs to resume, and the measure of what durability costs.

Nothing outlives the process; `commit` only remembers the positions it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from heapq import heappop, heappush

from lycosa.core.frontier import Policy, State
from lycosa.core.model import FrontierStats, UrlRecord
from lycosa.core.segments import starts_at
from lycosa.frontiers.local import HostMemory, LocalFrontier

Rank = tuple[int, int]
"""Order within a host: highest priority first, then first come, first served."""

WAKE_MAX = 1000


class MemoryShelf:
    """See `local.Shelf`."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, int]] = set()
        self._queues: dict[str, list[tuple[Rank, UrlRecord]]] = {}
        self._sleeping: list[tuple[float, int, UrlRecord]] = []
        self._hosts: dict[str, HostMemory] = {}
        self._positions: dict[str, int] = {}
        self._reasons: Counter[str] = Counter()
        self._dead: list[tuple[UrlRecord, str]] = []
        self._queued = self._arrivals = 0

    def add(self, record: UrlRecord) -> State | None:
        """Store what is new."""
        if not record.dont_filter:
            key = (record.segment, record.fingerprint)
            if key in self._seen:
                return None
            self._seen.add(key)
        if record.not_before > 0:
            self._sleep(record)
            return State.DELAYED
        self._arrive(record)
        return State.QUEUED

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were added before."""
        return {fingerprint for fingerprint in fingerprints if (segment, fingerprint) in self._seen}

    def take(self, host: str) -> tuple[Rank, UrlRecord, float | None] | None:
        """Pop the first of the host's heap."""
        queue = self._queues.get(host)
        if not queue:
            return None
        self._queued -= 1
        place, record = heappop(queue)
        if not queue:
            del self._queues[host]
        return place, record, starts_at(queue[0][1].segment) if queue else None

    def put_back(self, place: Rank, record: UrlRecord) -> None:
        """Queue it where it was."""
        heappush(self._queues.setdefault(record.host, []), (place, record))
        self._queued += 1

    def finish(self, place: Rank, record: UrlRecord, reason: str) -> None:
        """Count it."""
        self._reasons[reason] += 1

    def retry(self, place: Rank, record: UrlRecord) -> None:
        """Let it sleep."""
        self._sleep(record)

    def bury(self, place: Rank, record: UrlRecord, reason: str) -> None:
        """Keep it with its reason."""
        self._dead.append((record, reason))

    def wake(self, now: float) -> Sequence[str]:
        """Queue what is due."""
        woken: list[str] = []
        while self._sleeping and self._sleeping[0][0] <= now and len(woken) < WAKE_MAX:
            record = heappop(self._sleeping)[2]
            self._arrive(record)
            woken.append(record.host)
        return woken

    def next_due(self) -> float | None:
        """The first sleeper's time."""
        return self._sleeping[0][0] if self._sleeping else None

    def hosts_with_work(self) -> Sequence[str]:
        """None: a new shelf is empty."""
        return ()

    def recall_host(self, host: str) -> HostMemory:
        """Look it up."""
        return self._hosts.get(host, HostMemory())

    def remember_host(self, host: str, memory: HostMemory) -> None:
        """Keep it."""
        self._hosts[host] = memory

    def commit(self, positions: Mapping[str, int]) -> None:
        """Keep the positions."""
        self._positions.update(positions)

    def positions(self) -> dict[str, int]:
        """Return them."""
        return dict(self._positions)

    def stats(self) -> FrontierStats:
        """Count."""
        return FrontierStats(
            queued=self._queued,
            delayed=len(self._sleeping),
            done=self._reasons.total(),
            dead=len(self._dead),
            reasons=dict(self._reasons),
            dead_reasons=dict(Counter(reason for _, reason in self._dead)),
        )

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the first ones."""
        return self._dead[:limit]

    def close(self) -> None:
        """Nothing to release."""

    def _arrive(self, record: UrlRecord) -> None:
        self._arrivals += 1
        self.put_back((-record.priority, self._arrivals), record)

    def _sleep(self, record: UrlRecord) -> None:
        self._arrivals += 1
        heappush(self._sleeping, (record.not_before, self._arrivals, record))


def memory_frontier(policy: Policy) -> LocalFrontier[Rank]:
    """Return an empty frontier."""
    return LocalFrontier(policy, MemoryShelf())
