"""What is known of a proxy everywhere: can it be reached, how far is it, where does it come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.backoff import cool_s
from lycosa.proxies.core.pool.target_state import ProxyFacts, smoothed

UNKNOWN_LATENCY_S = 0.5
"""What a proxy is taken for that was never measured."""

DOWN_S = 10.0
DOWN_MAX_S = 3600.0
"""After a connection that failed a proxy rests; twice as long, at most, after each further one in a row."""

DOWNS_MAX = 5
"""So many in a row, and it is dead: only a check brings it back.

But not as long as no other proxy is reached between them: then it is rather our own network that is down, and it would
take all proxies with it, for good where nobody checks.
"""

UNCHECKED = "not checked yet"
"""Why one that is new is dead, where checks come first."""

NOBODYS, REACHED = "", (Outcome(Blame.NOBODY),)
"""What a check says of the network, whatever it finds of a proxy: the judge was reached without it."""

MISS, PROXY, UNFIT = Blame.MISS, Blame.PROXY, Blame.UNFIT


def proves_reached(outcome: Outcome) -> bool:
    """Whether a proxy was reached, and not only something broke of which nobody knows where."""
    blame = outcome.blame
    if blame is PROXY:
        return False
    is_plain = blame is Blame.NOBODY and not outcome.reason  # a tunnel that worked, or `REACHED`
    return outcome.latency_s is not None or is_plain or blame in (Blame.NONE, Blame.SITE, UNFIT)


@dataclass(slots=True)
class ProxyHealth:
    """`downs` in a row, the last of them at `down_at`; `checked_at`, `good_at`, `dead_at`: all in unix seconds.

    `exit_ip` is "" when it is not known or changes; `dead_at` 0 when it is not dead.
    """

    latency_s: float | None = None
    downs: int = 0
    rests_until: float = 0.0
    dead: bool = False
    exit_ip: str = ""
    checked_at: float = 0.0
    good_at: float = 0.0
    reason: str = ""
    dead_at: float = 0.0
    down_at: float = 0.0

    def order(self) -> float:
        """Return by what the global pool is ordered (seconds)."""
        return UNKNOWN_LATENCY_S if self.latency_s is None else self.latency_s

    def hear(self, outcome: Outcome, now: float, draw: float, reached_at: float = 0.0) -> bool:
        """Take what a use says of the proxy as such. Return whether targets have to know.

        `reached_at`: when any proxy was reached last.
        """
        if outcome.latency_s is not None:
            self.latency_s = smoothed(self.latency_s, outcome.latency_s)
        if outcome.blame is PROXY:
            return self._down(outcome.reason, now, draw, others_work=reached_at > self.down_at)
        if outcome.blame is UNFIT:
            self.reason = outcome.reason
            self._die(now)
            return True
        if outcome.blame is MISS:
            return False
        self.good_at = now
        self.downs = 0
        if not self.dead:  # else it is for a check to say
            self.reason = ""
        return False

    def revive(self, now: float) -> None:
        """A check has found it well."""
        self.dead, self.downs, self.rests_until, self.reason = False, 0, 0.0, ""
        self.good_at, self.dead_at = now, 0.0

    def dead_for_s(self, now: float) -> float:
        """Return since when it is dead, in seconds before now; less than zero when it is not.

        Of one that died before that was noted, it is taken for the end of its last rest, or its last good use.
        """
        if not self.dead:
            return -1.0
        return max(0.0, now - (self.dead_at or max(self.rests_until, self.good_at)))

    def facts(self, tier: int, tags: Mapping[str, str]) -> ProxyFacts:
        """Return what targets know of it."""
        return ProxyFacts(self.latency_s, self.rests_until, self.dead, self.exit_ip, tier, tags)

    def _down(self, reason: str, now: float, draw: float, *, others_work: bool) -> bool:
        """One that rests already is not blamed for what was under way; one that is dead does not rest longer for it."""
        if self.dead or now < self.rests_until:
            return False
        self.downs += 1 if others_work or self.downs < DOWNS_MAX - 1 else 0
        self.down_at, self.reason = now, reason
        if self.downs >= DOWNS_MAX:
            self._die(now)
        self.rests_until = now + cool_s(DOWN_S, DOWN_MAX_S, self.downs, draw)
        return True

    def _die(self, now: float) -> None:
        if not self.dead:
            self.dead, self.dead_at = True, now
