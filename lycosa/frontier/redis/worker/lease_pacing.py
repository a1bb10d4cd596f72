"""When to ask for more where hosts keep a delay: turns come one by one, and each question is a round trip. Pure."""

from __future__ import annotations

from collections import deque

from lycosa.frontier.core.states import Policy

GATHER_MAX_S, GATHER_SHARE = 0.05, 20
"""A part of the delay, so much at most, goes by between two questions, so that each brings several turns."""


class Pace:
    """The questions of one worker. `gather_s` goes by between them; 0 without a delay. Times are unix seconds."""

    def __init__(self, policy: Policy, *, punctual: bool) -> None:
        self.gather_s = min(GATHER_MAX_S, policy.delay_s / GATHER_SHARE) if punctual else 0.0
        self.keeps = punctual and not policy.limits_addresses
        """Whether what is lent may wait here: the turn of an address counts from when it was lent."""
        self._handed = 0
        self._asked = deque([(0.0, 0)], maxlen=2)
        """The last two questions: when, and how many leases had been handed out by then."""

    def next_at(self) -> float:
        """Return when the next question may be asked."""
        return self._asked[-1][0] + self.gather_s if self.gather_s else 0.0

    def handed(self, leases: int) -> None:
        """So many leases were handed out."""
        self._handed += leases

    def asks(self, now: float) -> int:
        """A question is asked. Return how many will be wanted until the next, going by those since the last but one."""
        before_at, before = self._asked[0]
        self._asked.append((now, self._handed))
        share = self.gather_s / max(now - before_at, self.gather_s) if self.gather_s and self.keeps else 0.0
        return int((self._handed - before) * share)
