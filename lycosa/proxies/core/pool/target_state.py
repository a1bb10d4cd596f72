"""What is known of one proxy on one target, and the state it is in there.

                     lease                     no ban
        READY ----------------> LEASED ----------------> READY
          ^                       | ban                   ^
          | no ban                v        time           |
        HALF_OPEN <----------- COOLING ----------> HALF_OPEN
                     time                 one lease at a time, until one is released without a ban

BANNED: until a person lifts the ban (set by hand, or after many bans in a row). DEAD: not reachable, for any target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

DECAY = 0.95
"""Each new response multiplies the weight of older ones by this: some 20 responses make up the success rate."""

LATENCY_REFERENCE_S = 1.0
"""At this latency a proxy is worth half of one that answers at once."""

WORTH_MIN = 0.02
"""Even the worst proxy is tried now and then, because things change."""

SMOOTHING = 0.2
SAME_EXIT = ", at the same exit"
"""How the reason of a proxy ends that cools down because of another one."""


class ProxyState(StrEnum):
    """The states of the picture above."""

    READY = "ready"
    LEASED = "leased"
    COOLING = "cooling"
    HALF_OPEN = "half-open"
    BANNED = "banned"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """What the global pool knows of a proxy and passes on to its targets. Times in unix seconds.

    `tier`: 0 is the cheapest. `exit_ip`: "" when it is unknown or changes.
    """

    latency_s: float | None = None
    rests_until: float = 0.0
    dead: bool = False
    exit_ip: str = ""
    tier: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ProxyTargetState:
    """A proxy on a target: a member of its pool. Times in unix seconds.

    `rank`: its position in the order of use (`UseOrder`). `paced_until`: the delay of the target holds until then.
    `half_open`: it cools down until `rests_until`, or has not been proven to work since. `bans`, `misses`: those in a
    row. `queued`: it is in the order of use; `waiting`: it will be, at a later time.
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
        """The earliest time of the next lease."""
        return max(self.paced_until, self.rests_until)

    @property
    def usable(self) -> bool:
        """Whether the proxy takes part: neither cooling down or on trial, nor banned, nor dead."""
        return not (self.half_open or self.banned or self.facts.dead)

    @property
    def has_worked(self) -> bool:
        """Whether some use did not fail, or has no result yet: a tunnel never has one."""
        return self.uses > self.bad

    def cool_down(self, until: float) -> bool:
        """Grant no lease until then, and one at a time after that. Return whether the proxy was usable before."""
        was_usable = self.usable
        self.half_open = True
        self.rests_until = max(self.rests_until, until)
        return was_usable

    def recover(self, now: float) -> None:
        """Note a response that is not a ban. While the proxy cools down it is an answer to an older request."""
        if not self.half_open or self.rests_until <= now:
            self.half_open, self.bans, self.misses, self.reason = False, 0, 0, ""

    def clear_bans(self) -> None:
        """Lift bans and cool-downs."""
        self.banned = self.half_open = False
        self.bans = self.misses = 0
        self.rests_until = 0.0

    def cost(self) -> float:
        """Return by how much one use moves the proxy back in the order: less if it succeeds often and is near."""
        success = (self.successes + 1) / (self.successes + self.failures + 2)
        latency_s = self.facts.latency_s if self.latency_s is None else self.latency_s
        nearness = LATENCY_REFERENCE_S / (LATENCY_REFERENCE_S + (latency_s or 0.0))
        return 1 / max(WORTH_MIN, success * success * nearness)

    def count_response(self, success: bool | None) -> None:
        """Count a response; older ones lose weight.

        None: it says nothing about the site, as the end of a tunnel, but shows that data came through, so only older
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
    """Let a proxy cool down as long as the banned ones of `others`, which share its exit address.

    Return whether the proxy was usable before.
    """
    banned = [other for other in others if other is not member and other.bans and other.rests_until > now]
    if not banned:
        return False
    last = max(banned, key=lambda other: (other.rests_until, other.key))
    member.reason = last.reason + SAME_EXIT
    return member.cool_down(last.rests_until)


def smoothed(mean: float | None, newest: float) -> float:
    """Return the exponentially weighted mean, updated with the newest value."""
    return newest if mean is None else mean + (newest - mean) * SMOOTHING
