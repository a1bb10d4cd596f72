"""How the proxies of one target are used."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TargetPolicy:
    """Times in seconds. A use is one request; one lease may cover several uses.

    concurrency     maximum number of concurrent leases of one proxy; 1: exclusive; 0: unlimited
    delay_s         minimum time between the starts of two leases of one proxy
    lease_s         time after which a lease ends if it is neither renewed nor released
    members         number of usable proxies to keep, if the global pool has that many
    cool_s          maximum of the first cool-down after a ban. The maximum doubles with each ban in a row, up to
                    `max_cool_s`. The cool-down is drawn between zero and the maximum (full jitter), but lasts at least
                    1 s. A Retry-After replaces the draw, up to `max_cool_s`
    max_misses      number of misses (`Blame.MISS`) in a row that count as a ban; on trial, the first one does
    max_bans        number of bans in a row after which a proxy stays banned until a person lifts the ban; 0: never
    sticky_s        how long a session keeps its proxy after the last use of the session
    guarded         whether to limit the rate of the other proxies when one is banned or fails (`pool.rate_guard`)
    """

    concurrency: int = 1
    delay_s: float = 0.0
    lease_s: float = 60.0
    members: int = 200
    cool_s: float = 300.0
    max_cool_s: float = 3600.0
    max_misses: int = 3
    max_bans: int = 0
    sticky_s: float = 600.0
    guarded: bool = True
