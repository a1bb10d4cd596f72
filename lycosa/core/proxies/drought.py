"""How long no proxy that works is to be had, and what then: it is told once, and at last is too long.

That one was lent says nothing, for it may be as dead as the others: who got an answer through one ends the drought.
Times are in unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NO_PROXY = "no proxy"
"""Why a crawl ends for which it was too long."""

AGAIN_MIN_S, AGAIN_MAX_S = 1.0, 30.0
"""Who got none asks again after a quarter of the time that it lasts already, within these bounds."""


class Dry(NamedTuple):
    """It lasts for `for_s`; `new`: nobody was told yet; `again_s`: when to ask again, None when it is too long."""

    for_s: float
    new: bool
    again_s: float | None


@dataclass(slots=True)
class Drought:
    """It is too long after `most_s` seconds, None: never.

    `since` is when somebody began to wait in vain, 0 for none, `worked_at` when one worked last.
    """

    most_s: float | None
    since: float = 0.0
    worked_at: float = 0.0
    told: bool = False

    def none(self, began: float, now: float) -> Dry:
        """Somebody has waited since `began`, and got none."""
        if not self.since:
            self.since = max(began, self.worked_at)
        new = not self.told and self.worked_at <= began  # else the others get on, and this one does not
        self.told |= new
        for_s = max(0.0, now - self.since)
        if self.most_s is not None and for_s >= self.most_s:
            return Dry(for_s, new, None)
        again_s = min(max(for_s / 4, AGAIN_MIN_S), AGAIN_MAX_S)
        left_s = again_s if self.most_s is None else self.most_s - for_s
        return Dry(for_s, new, min(again_s, left_s))

    def worked(self, now: float) -> float:
        """Somebody got an answer through one. Return how long it had lasted, if that was told, else 0."""
        lasted_s = now - self.since if self.told else 0.0
        self.since, self.worked_at, self.told = 0.0, now, False
        return lasted_s
