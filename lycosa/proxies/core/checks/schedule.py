"""A schedule of many items. An item is due again after an interval if it succeeded, or after a pause if it failed. The
pause grows with each failure in a row.

Intervals and pauses are random, so that items drift apart (`pool.backoff`).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from lycosa.proxies.core.pool.backoff import cool_s

JITTER = 0.1
"""Maximum random change of an interval, as a share of it."""

OUTDATED_FACTOR, OUTDATED_MIN = 4, 64
"""A rescheduled item leaves its old entry in the heap. The heap is rebuilt when it has more than OUTDATED_FACTOR
entries per item, plus OUTDATED_MIN."""


@dataclass(slots=True)
class ScheduledItem:
    """When an item is due (unix seconds), how many times in a row it failed, and whether it is running."""

    at: float
    failures: int = 0
    running: bool = False


class Schedule:
    """Items by name. A running item is not due.

    `retry_s`: maximum pause after a first failure. The maximum doubles with each further failure in a row, up to
    `retry_max_s`.
    """

    def __init__(self, retry_s: float, retry_max_s: float) -> None:
        self._retry_s = retry_s
        self._retry_max_s = retry_max_s
        self._items: dict[str, ScheduledItem] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._items)

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def add(self, name: str, at: float) -> None:
        """Add an item, unless it exists."""
        if name not in self._items:
            self._set(name, ScheduledItem(at))

    def remove(self, name: str) -> None:
        self._items.pop(name, None)

    def names(self) -> list[str]:
        return list(self._items)

    def failures(self, name: str) -> int:
        item = self._items.get(name)
        return item.failures if item is not None else 0

    def start_due(self, now: float, limit: int) -> list[str]:
        """Start up to `limit` due items, the longest overdue first."""
        started: list[str] = []
        while len(started) < limit and (at := self.next_at()) is not None and at <= now:
            name = heappop(self._heap)[1]
            self._items[name].running = True
            started.append(name)
        return started

    def finish(self, name: str, now: float, draw: float, interval_s: float, *, success: bool) -> None:
        """End a running item, and schedule it again. `interval_s` applies after a success."""
        item = self._items.get(name)
        if item is None:
            return
        if success:
            self._set(name, ScheduledItem(now + interval_s * (1 + JITTER * (2 * draw - 1))))
            return
        # Only half of the pause is random, so that the pauses between failures in a row keep growing.
        pause_s = cool_s(self._retry_s, self._retry_max_s, item.failures + 1, 0.5 + draw / 2)
        self._set(name, ScheduledItem(now + pause_s, item.failures + 1))

    def reschedule(self, name: str, at: float) -> None:
        """End a running item that has neither failed nor succeeded."""
        item = self._items.get(name)
        if item is not None:
            self._set(name, ScheduledItem(at, item.failures))

    def next_at(self) -> float | None:
        """Return when the next item is due; None if no item waits."""
        while self._heap:
            at, name = self._heap[0]
            item = self._items.get(name)
            if item is not None and item.at == at and not item.running:
                return at
            heappop(self._heap)
        return None

    def _set(self, name: str, item: ScheduledItem) -> None:
        self._items[name] = item
        heappush(self._heap, (item.at, name))
        if len(self._heap) > OUTDATED_FACTOR * len(self._items) + OUTDATED_MIN:
            self._heap = sorted((each.at, key) for key, each in self._items.items() if not each.running)
