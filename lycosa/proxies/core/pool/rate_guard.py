"""Prevents cascading bans: if the load of a banned proxy moved to the others, they would be banned, too.

Normally the proxies of a target are used as fast as requests arrive, and the guard measures the recent rate per proxy.
When a proxy is lost (a ban, no connection), that rate becomes the limit of the others, so the target slows down by the
share of the lost proxy. While the limit holds, further losses do not change it: requests then wait for proxies that do
not respond, so the measured rate does not show which rate the site accepts. A proxy that never worked for this target
had no load, so its loss sets no limit.

After BAN_HOLD_S without a further ban, or DOWN_HOLD_S without a failure, the limit fades: the minimum interval is
halved every FADE_S.
"""

from __future__ import annotations

from dataclasses import dataclass

BAN_HOLD_S = 600.0
DOWN_HOLD_S = 60.0
"""Shorter than BAN_HOLD_S: a proxy that cannot be reached says nothing about the tolerance of the site."""

FADE_S = 60.0
WINDOW_S, WINDOW_MIN = 2.0, 16
"""Minimum seconds and leases of a measurement. A shorter burst shows no rate."""

SLOWDOWN = 1.05
"""Maximum growth of the measured interval per window: a single slow window must not hide the rate."""

INTERVAL_MAX_S = 5.0
"""Maximum interval that the guard sets: a crawl that started slowly must be able to speed up."""


@dataclass(slots=True)
class RateGuard:
    """The rate limit of one target. Times in unix seconds.

    `count`: leases since `since`, the start of the window. `each_s`: mean interval between two leases of one proxy in
    the last window, limited by SLOWDOWN. `limit_s`: the minimum interval until `held_until`, after which it fades.
    """

    since: float = 0.0
    count: int = 0
    each_s: float = 0.0
    limit_s: float = 0.0
    held_until: float = 0.0

    def count_leases(self, now: float, count: int) -> bool:
        """Return whether the window is complete: then `end_window` must be called."""
        if not self.since:
            self.since = now  # the time before the first lease is not an interval
            return False
        self.count += count
        return self.count >= WINDOW_MIN and now - self.since >= WINDOW_S

    def end_window(self, now: float, usable: int) -> None:
        """`usable`: the number of proxies that shared the leases of the window."""
        each_s = (now - self.since) * max(1, usable) / self.count
        if self.each_s:
            each_s = min(each_s, self.each_s * SLOWDOWN)
        self.each_s = max(each_s, self.interval_s(now))
        self.since, self.count = now, 0

    def proxy_lost(self, now: float, hold_s: float) -> None:
        """Limit each proxy to the rate at which it was used until now."""
        if self.each_s:
            if now >= self.held_until:
                self.limit_s = min(max(self.each_s, self.interval_s(now)), INTERVAL_MAX_S)
            self.held_until = max(self.held_until, now + hold_s)

    def interval_s(self, now: float) -> float:
        """Return the minimum interval between two leases of one proxy."""
        if not self.limit_s:
            return 0.0
        halvings = (now - self.held_until) / FADE_S
        if halvings <= 0:
            return self.limit_s
        return self.limit_s * 0.5**halvings if halvings < 16 else 0.0
