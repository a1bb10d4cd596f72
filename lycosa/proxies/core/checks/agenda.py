"""When each of many things is to be done again: in its usual time after it went well, after growing pauses otherwise.

Both are drawn: what began together drifts apart, and what failed together does not come back together (`pool.backoff`).
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from lycosa.proxies.core.pool.backoff import cool_s

JITTER = 0.1
"""The part of the usual time by which the next turn is earlier or later, at most."""

OUTDATED_FACTOR, OUTDATED_MIN = 4, 64
"""Outdated entries are cleared away when there are more than so many for each thing."""


@dataclass(slots=True)
class Turn:
    """When a thing's turn is (unix seconds), how often in a row it failed, and whether it is being done now."""

    at: float
    failures: int = 0
    under_way: bool = False


class Agenda:
    """Turns by name. `retry_s` is the pause after a first failure (drawn from zero to that), `retry_max_s` the longest.

    What is under way has no turn until it is `done`.
    """

    def __init__(self, retry_s: float, retry_max_s: float) -> None:
        self._retry_s = retry_s
        self._retry_max_s = retry_max_s
        self._turns: dict[str, Turn] = {}
        self._heap: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._turns)

    def __contains__(self, name: object) -> bool:
        return name in self._turns

    def add(self, name: str, at: float) -> None:
        """Give something new its first turn; what is here already keeps its own."""
        if name not in self._turns:
            self._set(name, Turn(at))

    def drop(self, name: str) -> None:
        """Forget something, and what is said of it later."""
        self._turns.pop(name, None)

    def names(self) -> list[str]:
        """Return all names."""
        return list(self._turns)

    def failures(self, name: str) -> int:
        """Return how often in a row it failed."""
        turn = self._turns.get(name)
        return turn.failures if turn is not None else 0

    def due(self, now: float, limit: int) -> list[str]:
        """Begin what is due, at most so many, the longest overdue first."""
        found: list[str] = []
        while len(found) < limit and (at := self.next_at()) is not None and at <= now:
            name = heappop(self._heap)[1]
            self._turns[name].under_way = True
            found.append(name)
        return found

    def done(self, name: str, now: float, draw: float, usual_s: float, *, well: bool) -> None:
        """End what was under way, and set its next turn. `usual_s` is the time to it when it went well."""
        turn = self._turns.get(name)
        if turn is None:
            return
        failures = 0 if well else turn.failures + 1
        pause_s = usual_s * (1 + JITTER * (2 * draw - 1)) if well else self._pause_s(failures, draw)
        self._set(name, Turn(now + pause_s, failures))

    def again(self, name: str, at: float) -> None:
        """End what was under way without a result: its turn is at this time."""
        turn = self._turns.get(name)
        if turn is not None:
            self._set(name, Turn(at, turn.failures))

    def next_at(self) -> float | None:
        """Return when the next turn is, None when nothing waits for one."""
        while self._heap:
            at, name = self._heap[0]
            turn = self._turns.get(name)
            if turn is not None and turn.at == at and not turn.under_way:
                return at
            heappop(self._heap)
        return None

    def _pause_s(self, failures: int, draw: float) -> float:
        """Half of it is certain, so that a row of failures is a row of longer pauses."""
        return cool_s(self._retry_s, self._retry_max_s, failures, 0.5 + draw / 2)

    def _set(self, name: str, turn: Turn) -> None:
        self._turns[name] = turn
        heappush(self._heap, (turn.at, name))
        if len(self._heap) > OUTDATED_FACTOR * len(self._turns) + OUTDATED_MIN:
            self._heap = sorted((each.at, key) for key, each in self._turns.items() if not each.under_way)
