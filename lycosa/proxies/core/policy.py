"""How the proxies of one target are used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """All times in seconds. A use is one request; a lease may be used more than once.

    concurrency     leases of one proxy for this target at a time; 1: exclusive
    delay_s         least time between the starts of two leases of one proxy for this target
    lease_s         a lease that is neither renewed nor returned comes back after this time
    members         usable proxies that this target has, as long as the global pool can fill it up
    cool_s          the first cool-down after a ban: it doubles with each ban in a row, is drawn from zero to that
                    (full jitter), and is at most `cool_max_s`; a Retry-After is kept as it is, to `cool_max_s`
    misses_max      broken connections in a row that count as a ban
    bans_max        bans in a row after which a proxy stays banned until somebody lifts it; 0: never
    sticky_s        a session keeps its proxy for so long after its last use
    guarded         a ban or failure never raises the rate at which the other proxies are used (`pool.rate_guard`)
    """

    concurrency: int = 1
    delay_s: float = 0.0
    lease_s: float = 60.0
    members: int = 200
    cool_s: float = 300.0
    cool_max_s: float = 3600.0
    misses_max: int = 3
    bans_max: int = 0
    sticky_s: float = 600.0
    guarded: bool = True
