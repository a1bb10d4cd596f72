"""Decides when a worker asks for more leases: hosts become ready one by one, but each call should return several
leases.
"""

from __future__ import annotations

from collections import deque

from lycosa.frontier.core.states import Policy

GATHER_MAX_S, GATHER_SHARE = 0.05, 20
"""Minimum seconds between two calls: delay/GATHER_SHARE, at most GATHER_MAX_S."""


class LeasePacing:
    """Calls of a worker are at least `gather_s` apart.

    `gather_s` is 0 without a delay, or if not `punctual` (in simulations). Times are unix seconds.
    """

    def __init__(self, policy: Policy, *, punctual: bool) -> None:
        self.gather_s = min(GATHER_MAX_S, policy.delay_s / GATHER_SHARE) if punctual else 0.0
        self.leases_ahead = punctual and not policy.limits_addresses
        """Whether to request leases before they are needed.

        False in simulations, and if IP addresses have limits: the delay of an address counts from the lease, so the
        transfers of leases that wait in the worker could start too close together.
        """
        self._handed_out = 0
        self._calls = deque([(0.0, 0)], maxlen=2)
        """The time of each of the last two calls, and the number of leases handed out before it."""

    def next_call_at(self) -> float:
        return self._calls[-1][0] + self.gather_s if self.gather_s else 0.0

    def record_leases(self, leases: int) -> None:
        self._handed_out += leases

    def record_call(self, now: float) -> int:
        """Return the number of leases that the worker will want before the next call.

        The estimate is based on the rate since the call before the last one.
        """
        before_at, before = self._calls[0]
        self._calls.append((now, self._handed_out))
        share = self.gather_s / max(now - before_at, self.gather_s) if self.gather_s and self.leases_ahead else 0.0
        return int((self._handed_out - before) * share)
