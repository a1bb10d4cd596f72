"""How long nobody is lent a proxy, and what then: it is told once, and at last is too long. Times in unix seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

NO_PROXY = "no proxy"
"""Why a crawl ends for which it was too long."""

AGAIN_MIN_S, AGAIN_MAX_S = 1.0, 30.0
"""Who got none asks again after a quarter of the time that it lasts already, within these bounds."""


class Dry(NamedTuple):
    """It lasts for `for_s`. `new`: nobody was told of it yet; `again_s`: when to ask again, None when it is too long."""

    for_s: float
    new: bool
    again_s: float | None


@dataclass(slots=True)
class Drought:
    """None is too long for `most_s` seconds, None: never. `since` is when somebody began to wait in vain, 0 for none."""

    most_s: float | None
    since: float = 0.0
    got_at: float = 0.0
    told: bool = False

    def none(self, began: float, now: float) -> Dry:
        """Somebody has waited since `began`, and got none."""
        if not self.since:
            self.since = max(began, self.got_at)
        new, self.told = not self.told, True
        for_s = max(0.0, now - self.since)
        if self.most_s is not None and for_s >= self.most_s:
            return Dry(for_s, new, None)
        again_s = min(max(for_s / 4, AGAIN_MIN_S), AGAIN_MAX_S)
        left_s = again_s if self.most_s is None else self.most_s - for_s
        return Dry(for_s, new, min(again_s, left_s))

    def got(self, now: float) -> float:
        """Somebody was lent one. Return how long it had lasted, if that was told, else 0."""
        lasted_s = now - self.since if self.told and self.since else 0.0
        self.since, self.got_at, self.told = 0.0, now, False
        return lasted_s
