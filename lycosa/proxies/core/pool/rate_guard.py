"""The guard against cascading bans: one ban must not push its load onto the others until they are banned, too.

As long as all is well, proxies of a target are used as fast as requests come, one lease at a time. How fast each of
them was used of late is known. When one is lost (a ban, no connection), that becomes the most that each of the others
is used: the whole becomes slower by what was lost. It stays the most while more are lost, however slow the whole is
meanwhile: who waits for what does not answer says nothing about what the others can bear. One that never worked here
had no load, and slows nobody. After BAN_HOLD_S without a
further ban, or DOWN_HOLD_S without a failure, the limit is halved in each FADE_S, until it limits nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

BAN_HOLD_S = 600.0
DOWN_HOLD_S = 60.0
"""A proxy that cannot be reached says nothing of the site's patience."""

FADE_S = 60.0
WINDOW_S, WINDOW_MIN = 2.0, 16
"""So long, and so many leases, are measured together: a burst or a pause is no rate."""

FORGETTING = 1.05
"""What was fastest so far is forgotten by a twentieth with each window."""

INTERVAL_MAX_S = 5.0
"""The guard never makes a proxy slower than one use in so long: a crawl that began slowly has to get faster."""


@dataclass(slots=True)
class RateGuard:
    """The leases of a target since `since`, and how often one proxy may be used since something was lost.

    `each_s` is the least mean time between two leases of one proxy in the last windows. Times in unix seconds.
    """

    since: float = 0.0
    count: int = 0
    each_s: float = 0.0
    interval_s: float = 0.0
    held_until: float = 0.0

    def granted(self, now: float, count: int) -> bool:
        """So many leases begin now. Return whether a window ends, which `measured` has to hear."""
        if not self.since:
            self.since = now  # what is before the first one is no time between two
            return False
        self.count += count
        return self.count >= WINDOW_MIN and now - self.since >= WINDOW_S

    def measured(self, now: float, usable: int) -> None:
        """The leases of this window were shared by so many proxies."""
        each_s = (now - self.since) * max(1, usable) / self.count
        if self.each_s:
            each_s = min(each_s, self.each_s * FORGETTING)
        self.each_s = max(each_s, self.least_s(now))
        self.since, self.count = now, 0

    def lost(self, now: float, hold_s: float) -> None:
        """A proxy was lost: from now on no other is used more often than each was until now."""
        if self.each_s:
            if now >= self.held_until:
                self.interval_s = min(max(self.each_s, self.least_s(now)), INTERVAL_MAX_S)
            self.held_until = max(self.held_until, now + hold_s)

    def least_s(self, now: float) -> float:
        """Return the least time between two leases of one proxy."""
        if not self.interval_s:
            return 0.0
        halvings = (now - self.held_until) / FADE_S
        if halvings <= 0:
            return self.interval_s
        return self.interval_s * 0.5**halvings if halvings < 16 else 0.0
