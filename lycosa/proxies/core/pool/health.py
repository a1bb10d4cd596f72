"""What is known of a proxy everywhere: whether it can be reached, its latency and its exit address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.backoff import cool_s
from lycosa.proxies.core.pool.target_state import ProxyFacts, smoothed

UNKNOWN_LATENCY_S = 0.5
"""The assumed latency of a proxy that was never measured."""

DOWN_S = 10.0
DOWN_MAX_S = 3600.0
"""The cool-down after a failed connection: twice as long with each further one in a row, at most DOWN_MAX_S."""

DOWNS_MAX = 5
"""After so many failures in a row a proxy is dead, and only a check revives it.

If no other proxy was reached between two of them, rather our own network is down. Then the count stops before the last
one: otherwise an outage of ours would kill all proxies, for ever where nobody checks them.
"""

UNCHECKED = "not checked yet"
"""The reason why a new proxy is dead, where checks come first."""

NO_PROXY_KEY, REACHED = "", (Outcome(Blame.NOBODY),)
"""What any check reports, besides its result for a proxy: our network works, as the judge was reached directly."""

MISS, PROXY, UNFIT = Blame.MISS, Blame.PROXY, Blame.UNFIT


def proves_reached(outcome: Outcome) -> bool:
    """Whether the proxy was reached for certain. A broken connection (MISS) may have failed at any place."""
    blame = outcome.blame
    if blame is PROXY:
        return False
    is_plain = blame is Blame.NOBODY and not outcome.reason  # a tunnel that worked, or `REACHED`
    return outcome.latency_s is not None or is_plain or blame in (Blame.NONE, Blame.SITE, UNFIT)


@dataclass(slots=True)
class ProxyHealth:
    """Times in unix seconds. `downs`: failed connections in a row, the last one at `down_at`.

    `exit_ip`: "" when it is unknown or changes. `dead_at`: 0 when the proxy is not dead.
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

    def sort_latency_s(self) -> float:
        """Return the latency by which the global pool is sorted."""
        return UNKNOWN_LATENCY_S if self.latency_s is None else self.latency_s

    def record(self, outcome: Outcome, now: float, draw: float, reached_at: float = 0.0) -> bool:
        """Record what a use says about the proxy itself. Return whether the targets must know.

        `reached_at`: when any proxy was last reached.
        """
        if outcome.latency_s is not None:
            self.latency_s = smoothed(self.latency_s, outcome.latency_s)
        if outcome.blame is PROXY:
            return self._count_down(outcome.reason, now, draw, others_work=reached_at > self.down_at)
        if outcome.blame is UNFIT:
            self.reason = outcome.reason
            self._die(now)
            return True
        if outcome.blame is MISS:
            return False
        self.good_at = now
        self.downs = 0
        if not self.dead:  # a check decides whether a dead one works again
            self.reason = ""
        return False

    def revive(self, now: float) -> None:
        """Note that a check has found the proxy working."""
        self.dead, self.downs, self.rests_until, self.reason = False, 0, 0.0, ""
        self.good_at, self.dead_at = now, 0.0

    def dead_for_s(self, now: float) -> float:
        """Return for how many seconds the proxy has been dead, -1 when it is not.

        Without `dead_at` (an older store) the end of its last cool-down or its last good use counts.
        """
        if not self.dead:
            return -1.0
        return max(0.0, now - (self.dead_at or max(self.rests_until, self.good_at)))

    def facts(self, tier: int, tags: Mapping[str, str]) -> ProxyFacts:
        """Return what targets know of the proxy."""
        return ProxyFacts(self.latency_s, self.rests_until, self.dead, self.exit_ip, tier, tags)

    def _count_down(self, reason: str, now: float, draw: float, *, others_work: bool) -> bool:
        # While it cools down, failures are of requests sent before: they do not count, nor do those of a dead one.
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
