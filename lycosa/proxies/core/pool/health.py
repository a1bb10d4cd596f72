"""What is known about a proxy for all targets: whether it can be reached, its latency and its exit address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.backoff import cool_s
from lycosa.proxies.core.pool.target_state import ProxyFacts, smoothed

UNKNOWN_LATENCY_S = 0.5
"""Assumed for a proxy that was never measured."""

DOWN_S = 10.0
DOWN_MAX_S = 3600.0
"""Maximum seconds of a cool-down: DOWN_S after a first failed connection, doubled with each further one in a row.
DOWN_MAX_S would end the doubling, but after DOWNS_MAX failures a proxy is dead anyway."""

DOWNS_MAX = 5
"""After this number of failures in a row, a proxy is dead until a check revives it.

If no proxy was reached since the previous failure, our own network is probably down. The count then stays below
DOWNS_MAX, because an outage of our network must not mark all proxies as dead: without checks they would stay dead."""

UNCHECKED = "not checked yet"
"""The reason of a new proxy before its first check. It counts as dead until a check succeeds."""

NO_PROXY_KEY, REACHED = "", (Outcome(Blame.NOBODY),)
"""Every check also reports REACHED under NO_PROXY_KEY: the judge (the server to which checks send their requests)
answered without a proxy, so our own network works."""

MISS, PROXY, UNFIT = Blame.MISS, Blame.PROXY, Blame.UNFIT


def proves_reached(outcome: Outcome) -> bool:
    """Return whether the proxy was certainly reached. A broken connection (MISS) may have failed anywhere."""
    blame = outcome.blame
    if blame is PROXY:
        return False
    is_plain = blame is Blame.NOBODY and not outcome.reason  # a tunnel that worked, or `REACHED`
    return outcome.latency_s is not None or is_plain or blame in (Blame.NONE, Blame.SITE, UNFIT)


@dataclass(slots=True)
class ProxyHealth:
    """The health of a proxy. Times in unix seconds. `downs`: failed connections in a row, the last one at `down_at`.

    `exit_ip`: "" if unknown or changing. `dead_at`: 0 if the proxy is not dead.
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
        return UNKNOWN_LATENCY_S if self.latency_s is None else self.latency_s

    def record(self, outcome: Outcome, now: float, draw: float, reached_at: float = 0.0) -> bool:
        """Record an outcome. Return whether the targets must be updated. `reached_at`: when any proxy was last
        reached."""
        if outcome.latency_s is not None:
            self.latency_s = smoothed(self.latency_s, outcome.latency_s)
        if self.reason == UNCHECKED and outcome.blame in (PROXY, MISS):
            self.reason = outcome.reason
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
        if not self.dead:  # only a check revives a dead proxy
            self.reason = ""
        return False

    def revive(self, now: float) -> None:
        self.dead, self.downs, self.rests_until, self.reason = False, 0, 0.0, ""
        self.good_at, self.dead_at = now, 0.0

    def dead_for_s(self, now: float) -> float:
        """Return for how many seconds the proxy has been dead; -1 if it is not dead.

        A proxy from an older store has no `dead_at`. It counts as dead since its last good use or the end of its last
        cool-down, whichever is later.
        """
        if not self.dead:
            return -1.0
        return max(0.0, now - (self.dead_at or max(self.rests_until, self.good_at)))

    def facts(self, tier: int, tags: Mapping[str, str]) -> ProxyFacts:
        return ProxyFacts(self.latency_s, self.rests_until, self.dead, self.exit_ip, tier, tags)

    def _count_down(self, reason: str, now: float, draw: float, *, others_work: bool) -> bool:
        # Failures during a cool-down come from requests sent before it. They do not count, nor do failures of a dead
        # proxy.
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
