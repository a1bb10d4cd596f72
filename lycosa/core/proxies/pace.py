"""The guard against the waterfall: one ban must not push its load onto the others until they are banned, too.

As long as all is well, proxies of a target are used as fast as requests come, one lease at a time. When one is lost (a
ban, no connection), the rate at which each was used until then becomes the most that each of the others is used from
then on: the whole becomes slower by what was lost. After HOLD_S without a loss the limit is halved in each further
HOLD_S, until it limits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

HOLD_S = 600.0
SMOOTHING = 1 / 32
"""The weight of the newest gap between two leases in their mean."""

GAP_MAX = 8.0
"""A gap counts as at most so many means: a pause says nothing about the load."""

INTERVAL_MAX_S = 60.0
GAPS_MIN = 8
"""Before so many gaps were seen nobody knows the rate."""


@dataclass(slots=True)
class Pace:
    """The mean time between two leases of a target, and how often one proxy may be used since something was lost."""

    gap_s: float = 0.0
    gaps: int = 0
    granted_at: float = 0.0
    interval_s: float = 0.0
    held_at: float = 0.0

    def granted(self, now: float, count: int) -> None:
        """So many leases began now."""
        if self.granted_at:
            gap_s = max(0.0, now - self.granted_at) / count
            if self.gaps >= GAPS_MIN:
                gap_s = min(gap_s, self.gap_s * GAP_MAX)
            self.gaps += 1
            self.gap_s += (gap_s - self.gap_s) * max(SMOOTHING, 1 / self.gaps)
        self.granted_at = now

    def lost(self, now: float, usable: int) -> None:
        """One of `usable` proxies was lost: from now on no other is used more often than each was until now."""
        if self.gaps >= GAPS_MIN:
            self.interval_s = max(self.least_s(now), min(self.gap_s * usable, INTERVAL_MAX_S))
            self.held_at = now

    def least_s(self, now: float) -> float:
        """Return the least time between two leases of one proxy."""
        if not self.interval_s:
            return 0.0
        over_s = now - self.held_at - HOLD_S
        if over_s <= 0:
            return self.interval_s
        halvings = over_s / HOLD_S
        return self.interval_s * 0.5**halvings if halvings < 16 else 0.0
