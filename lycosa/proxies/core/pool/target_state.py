"""What is known about one proxy for one target, and its state for that target.

    READY      -- lease -->               LEASED
    LEASED     -- release, no ban -->     READY
    LEASED     -- ban -->                 COOLING
    COOLING    -- end of the time -->     HALF_OPEN      on trial: one lease at a time, shown as LEASED
    HALF_OPEN  -- release, no ban -->     READY
    HALF_OPEN  -- ban -->                 COOLING

BANNED: a person banned the proxy, or the target banned it many times in a row. It stays banned until a person lifts the
ban. DEAD: unreachable or unfit, for all targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DECAY = 0.95
"""Each response multiplies the weight of older ones by this: about 20 responses determine the success rate."""

LATENCY_REFERENCE_S = 1.0
"""With this latency, a proxy is worth half as much as without latency."""

WORTH_MIN = 0.02
"""Even the worst proxy is tried now and then: it may have improved."""

SMOOTHING = 0.2
SAME_EXIT = ", at the same exit"
"""Appended to the reason of a cool-down that another proxy at the same exit address caused."""


class ProxyState(StrEnum):
    """The state of a proxy for one target."""

    READY = "ready"
    LEASED = "leased"
    COOLING = "cooling"
    HALF_OPEN = "half-open"
    BANNED = "banned"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """What the global pool knows about a proxy and passes on to its targets. Times in unix seconds.

    `tier`: 0 is the cheapest. `exit_ip`: "" if unknown or changing.
    """

    latency_s: float | None = None
    rests_until: float = 0.0
    dead: bool = False
    exit_ip: str = ""
    tier: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ProxyTargetState:
    """A proxy as a member of the pool of a target. Times in unix seconds.

    `rank`: its position in the order of use. `paced_until`: no lease before this time (the delay, or the rate guard).
    `half_open`: it cools down until `rests_until`, or has not yet worked again since then. `bans`, `misses`: in a row.
    `queued`: it is in the order of ready proxies. `waiting`: it becomes ready at its `eligible_at`.
    """

    key: str
    facts: ProxyFacts
    rank: float
    paced_until: float = 0.0
    lease_count: int = 0
    half_open: bool = False
    rests_until: float = 0.0
    banned: bool = False
    bans: int = 0
    misses: int = 0
    uses: int = 0
    successes: float = 0.0
    failures: float = 0.0
    good: int = 0
    bad: int = 0
    latency_s: float | None = None
    used_at: float = 0.0
    reason: str = ""
    queued: bool = False
    waiting: bool = False

    def state(self, now: float) -> ProxyState:
        if self.facts.dead:
            return ProxyState.DEAD
        if self.banned:
            return ProxyState.BANNED
        if self.lease_count:
            return ProxyState.LEASED
        if self.half_open:
            return ProxyState.COOLING if self.rests_until > now else ProxyState.HALF_OPEN
        return ProxyState.READY

    @property
    def eligible_at(self) -> float:
        return max(self.paced_until, self.rests_until)

    @property
    def usable(self) -> bool:
        return not (self.half_open or self.banned or self.facts.dead)

    @property
    def has_worked(self) -> bool:
        """Whether at least one use did not fail. Uses without a result, such as tunnels, count as not failed."""
        return self.uses > self.bad

    @property
    def only_failed(self) -> bool:
        """Whether the proxy is on trial and all its uses have failed: others are used first."""
        return self.half_open and 0 < self.bad >= self.uses

    def cool_down(self, until: float) -> bool:
        """Allow no lease until this time, then one at a time until the proxy works. Return whether it was usable."""
        was_usable = self.usable
        self.half_open = True
        self.rests_until = max(self.rests_until, until)
        return was_usable

    def recover(self, now: float) -> None:
        """Record a response that is not a ban. Ignored during a cool-down, because the request was sent before it."""
        if not self.half_open or self.rests_until <= now:
            self.half_open, self.bans, self.misses, self.reason = False, 0, 0, ""

    def clear_bans(self) -> None:
        self.banned = self.half_open = False
        self.bans = self.misses = 0
        self.rests_until = 0.0

    def cost(self) -> float:
        """Return how far one use moves the proxy back: less for a high success rate and a low latency."""
        success = (self.successes + 1) / (self.successes + self.failures + 2)
        latency_s = self.facts.latency_s if self.latency_s is None else self.latency_s
        nearness = LATENCY_REFERENCE_S / (LATENCY_REFERENCE_S + (latency_s or 0.0))
        return 1 / max(WORTH_MIN, success * success * nearness)

    def count_response(self, success: bool | None) -> None:
        """Count a response, and reduce the weight of older ones.

        `success` is None for NOBODY, such as a 404 or the end of a tunnel: the proxy passed data on, so only older
        failures lose weight.
        """
        self.failures = self.failures * DECAY + (success is False)
        if success is None:
            return
        self.successes = self.successes * DECAY + success
        self.good += success
        self.bad += not success

    def count_latency(self, latency_s: float | None) -> None:
        if latency_s is not None:
            self.latency_s = smoothed(self.latency_s, latency_s)


def cool_down_like(member: ProxyTargetState, others: Iterable[ProxyTargetState], now: float) -> bool:
    """Let a proxy cool down as long as the banned proxies at its exit address. Return whether it was usable before.

    `others`: the proxies at that address.
    """
    banned = [other for other in others if other is not member and other.bans and other.rests_until > now]
    if not banned:
        return False
    last = max(banned, key=lambda other: (other.rests_until, other.key))
    member.reason = last.reason + SAME_EXIT
    return member.cool_down(last.rests_until)


def smoothed(mean: float | None, newest: float) -> float:
    """Return the exponentially weighted mean."""
    return newest if mean is None else mean + (newest - mean) * SMOOTHING
