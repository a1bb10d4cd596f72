"""One proxy on one target: what is known of it there, and which state it is in.

                     lease                     no ban
        READY ----------------> LEASED ----------------> READY
          ^                       | ban                   ^
          | no ban                v        time           |
        HALF_OPEN <----------- COOLING ----------> HALF_OPEN
                     time                 one lease at a time, until one comes back without a ban

BANNED: until somebody lifts it (by hand, or after too many bans in a row). DEAD: it cannot be reached, for any target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

MEMORY = 0.95
"""What is left of older answers with each new one: some 20 answers make the success of a pair."""

LATENCY_REFERENCE_S = 1.0
"""At this latency a proxy is worth half of one that answers at once."""

WORTH_MIN = 0.02
"""However bad, it is tried now and then: things change."""

SMOOTHING = 0.2
SAME_EXIT = ", at the same exit"
"""How the reason of a proxy ends that rests because of another one."""


class ProxyState(StrEnum):
    """Where a pair is, as drawn above."""

    READY = "ready"
    LEASED = "leased"
    COOLING = "cooling"
    HALF_OPEN = "half-open"
    BANNED = "banned"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ProxyFacts:
    """What the global pool knows of a proxy, and tells to the targets. Times in unix seconds.

    `tier`: 0 is the cheapest. `exit_ip` "": not known, or not the same for long.
    """

    latency_s: float | None = None
    rests_until: float = 0.0
    dead: bool = False
    exit_ip: str = ""
    tier: int = 0
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class ProxyTargetState:
    """`rank` is its place in the order of use (`UseOrder`). Before `paced_until` the others come first.

    `half_open`: it rests until `rests_until`, or nobody knows yet whether it works again. `bans`, `misses`: those in
    a row. `queued`: it stands among the ready ones; `waits`: among those that wait for their time.
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
    waits: bool = False

    def state(self, now: float) -> ProxyState:
        """Return the state at this time."""
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
    def at(self) -> float:
        """When it is eligible next."""
        return max(self.paced_until, self.rests_until)

    @property
    def usable(self) -> bool:
        """Whether it takes part: neither cooling (or not known to be well again), nor banned, nor dead."""
        return not (self.half_open or self.banned or self.facts.dead)

    @property
    def has_worked(self) -> bool:
        """Whether it was used and did not fail, or not yet: of a tunnel nobody sees more."""
        return self.uses > self.bad

    def rest(self, until: float) -> bool:
        """Rest until then, and be tried with one lease at first. Return whether it was usable before."""
        was_usable = self.usable
        self.half_open = True
        self.rests_until = max(self.rests_until, until)
        return was_usable

    def recover(self, now: float) -> None:
        """An answer came that is no ban; one that was asked for before a ban says nothing about it."""
        if not self.half_open or self.rests_until <= now:
            self.half_open, self.bans, self.misses, self.reason = False, 0, 0, ""

    def forgive(self) -> None:
        """Lift bans and rests."""
        self.banned = self.half_open = False
        self.bans = self.misses = 0
        self.rests_until = 0.0

    def cost(self) -> float:
        """Return by how much one use moves it back in the order: less for what succeeds and is near."""
        success = (self.successes + 1) / (self.successes + self.failures + 2)
        latency_s = self.facts.latency_s if self.latency_s is None else self.latency_s
        near = LATENCY_REFERENCE_S / (LATENCY_REFERENCE_S + (latency_s or 0.0))
        return 1 / max(WORTH_MIN, success * success * near)

    def answered(self, well: bool | None) -> None:
        """Count an answer; older ones lose weight.

        None: it says nothing of the site, as when a tunnel ends, but it came through: older failures lose weight.
        """
        self.failures = self.failures * MEMORY + (well is False)
        if well is None:
            return
        self.successes = self.successes * MEMORY + well
        self.good += well
        self.bad += not well

    def took(self, latency_s: float | None) -> None:
        """Count a latency (seconds)."""
        if latency_s is not None:
            self.latency_s = smoothed(self.latency_s, latency_s)


def rest_with(member: ProxyTargetState, others: Iterable[ProxyTargetState], now: float) -> bool:
    """Let a proxy of which is known now that it leaves where these do rest as long as those of them that were banned.

    Return whether it was usable before, and is no more.
    """
    banned = [other for other in others if other is not member and other.bans and other.rests_until > now]
    if not banned:
        return False
    last = max(banned, key=lambda other: (other.rests_until, other.key))
    member.reason = last.reason + SAME_EXIT
    return member.rest(last.rests_until)


def smoothed(mean: float | None, newest: float) -> float:
    """Return the exponentially weighted mean with a newest value."""
    return newest if mean is None else mean + (newest - mean) * SMOOTHING
