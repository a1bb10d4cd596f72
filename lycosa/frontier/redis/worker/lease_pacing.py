"""When to ask for more leases where hosts keep a delay: they become ready one by one, and each call is a round trip.

Pure.
"""

from __future__ import annotations

from collections import deque

from lycosa.frontier.core.states import Policy

GATHER_MAX_S, GATHER_SHARE = 0.05, 20
"""Between two calls passes a part of the delay, at most GATHER_MAX_S, so that each brings several leases."""


class LeasePacing:
    """The calls for leases of one worker, at least `gather_s` apart; 0 without a delay. Times are unix seconds."""

    def __init__(self, policy: Policy, *, punctual: bool) -> None:
        self.gather_s = min(GATHER_MAX_S, policy.delay_s / GATHER_SHARE) if punctual else 0.0
        self.leases_ahead = punctual and not policy.limits_addresses
        """Leases may wait here. Not with limits per address: those count from the lease, not from the real start."""
        self._handed_out = 0
        self._calls = deque([(0.0, 0)], maxlen=2)
        """The last two calls: when, and how many leases had been handed out by then."""

    def next_call_at(self) -> float:
        """Return when the next call may be made."""
        return self._calls[-1][0] + self.gather_s if self.gather_s else 0.0

    def handed_out(self, leases: int) -> None:
        """Count leases that were handed out."""
        self._handed_out += leases

    def called(self, now: float) -> int:
        """Note a call. Return how many leases will be wanted until the next one, judging by the time since the last."""
        before_at, before = self._calls[0]
        self._calls.append((now, self._handed_out))
        share = self.gather_s / max(now - before_at, self.gather_s) if self.gather_s and self.leases_ahead else 0.0
        return int((self._handed_out - before) * share)
