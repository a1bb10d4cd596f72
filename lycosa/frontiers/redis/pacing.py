"""When to ask for more where hosts keep a delay: turns come one by one, and each question is a round trip. Pure."""

from __future__ import annotations

from lycosa.core.frontier import Policy

GATHER_MAX_S, GATHER_SHARE = 0.05, 20
"""A part of the delay, so much at most, goes by between two questions, so that each brings several turns."""


class Pace:
    """The questions of one worker. `gather_s` goes by between them; 0 without a delay. Times are unix seconds."""

    def __init__(self, policy: Policy) -> None:
        self.gather_s = min(GATHER_MAX_S, policy.delay_s / GATHER_SHARE)
        self._ahead = not policy.resolves  # the turn of an address counts from when it was lent
        self._asked_at = 0.0
        self._handed = 0

    def next_at(self) -> float:
        """Return when the next question may be asked."""
        return self._asked_at + self.gather_s if self.gather_s else 0.0

    def handed(self, leases: int) -> None:
        """So many leases were handed out."""
        self._handed += leases

    def asks(self, now: float) -> int:
        """A question is asked. Return how many will be wanted until the next, going by those since the last."""
        passed_s, handed = now - self._asked_at, self._handed
        self._asked_at, self._handed = now, 0
        return int(handed * self.gather_s / max(passed_s, self.gather_s)) if self.gather_s and self._ahead else 0
