"""Limit the rate of events per host or client, in a table of limited size. A check takes 1 µs."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

ROUNDING_S = 1e-6


class RateLimit(Generic[Key]):
    """Allow each key `burst` events at once, and `per_s` events a second on average.

    The entry of a key is the time at which its full burst is available again (GCRA); the entry expires at this time.
    There are two generations of entries, of `keys_max / 2` each. The older one is dropped when all its entries have
    expired. When the newer one is full: with `refuse_when_full`, keys without an entry in it are refused, so the limit
    always holds; otherwise the older one is dropped early, so that a flood of forged addresses does not lock out other
    clients.
    """

    def __init__(self, per_s: float, burst: int, *, keys_max: int, refuse_when_full: bool = False) -> None:
        self._interval_s = 1 / per_s
        self._tolerance_s = (burst - 1) / per_s + ROUNDING_S
        self._generation_s = burst / per_s
        self._keys_max = keys_max // 2
        self._refuse_when_full = refuse_when_full
        self._recent: dict[Key, float] = {}
        self._older: dict[Key, float] = {}
        self._started = float("-inf")

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def allow(self, key: Key, now: float) -> bool:
        """Count one more event of the key, unless that would exceed the limit."""
        if now - self._started >= self._generation_s:
            self._next_generation(now)
        whole_at = self._whole_at(key)
        if whole_at - now > self._tolerance_s:
            return False
        if len(self._recent) >= self._keys_max and key not in self._recent:
            if self._refuse_when_full:
                return False
            self._next_generation(now)
        self._recent[key] = max(now, whole_at) + self._interval_s
        return True

    def put_back(self, key: Key) -> None:
        """Undo an `allow` whose event did not happen."""
        if key in self._recent:
            self._recent[key] -= self._interval_s
        elif key in self._older:
            self._older[key] -= self._interval_s

    def ready_at(self, key: Key, now: float) -> float:
        """Return the earliest time of the next allowed event, at least `now`."""
        ready_at = self._whole_at(key) - self._tolerance_s
        return now if ready_at <= now else ready_at + ROUNDING_S

    def _whole_at(self, key: Key) -> float:
        return self._recent.get(key) or self._older.get(key, 0.0)

    def _next_generation(self, now: float) -> None:
        self._older, self._recent = self._recent, {}
        self._started = now
