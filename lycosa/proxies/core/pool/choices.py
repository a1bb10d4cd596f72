"""The latest leases of each target in this process: which proxy was chosen and why, or why none was."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lycosa.core.recent_dict import RecentDict
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.target import ProxyRequest

CHOICES_MAX = 20

TARGETS_MAX = 1_000
"""Beyond this number, the least recently used target is forgotten."""

WAIT_SHOWN_S = 0.05
"""Shorter waits are not mentioned."""


@dataclass(slots=True)
class LeaseChoice:
    """A lease, or a request that got none. `proxy`: the name of the proxy, or "".

    `drawn_from`, `rebound`: as in `ProxyLease`. `refusal`: why there was no lease. `result`: "" before the release.
    """

    at: float
    client: str
    request: ProxyRequest
    waited_s: float
    proxy: str = ""
    drawn_from: int = 0
    rebound: bool = False
    refusal: str = ""
    result: str = ""

    def why(self) -> str:
        if self.refusal:
            return self.refusal
        tags = ", ".join(f"{name}={value}" for name, value in self.request.tags.items())
        return "".join(
            (
                f"drawn from {self.drawn_from:,}" if self.drawn_from else "bound to its session",
                f" with {tags}" if tags else "",
                ", because its session's proxy is not available" if self.rebound else "",
                f", not counting {len(self.request.avoid):,} excluded by the request" if self.request.avoid else "",
                f", waited {self.waited_s:.1f} s" if self.waited_s >= WAIT_SHOWN_S else "",
            )
        )

    def end(self, outcomes: Sequence[Outcome], *, in_time: bool = True) -> None:
        """Record the release. The result is the last bad outcome, or the last outcome if none is bad."""
        if not in_time:
            self.result = "released too late"
            return
        bad = [each for each in outcomes if each.blame not in (Blame.NONE, Blame.NOBODY)]
        last = (bad or list(outcomes))[-1:]
        self.result = _result(last[0]) if last else "not used"


class Choices:
    """The last choices of each target. `now` in unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._targets: RecentDict[str, deque[LeaseChoice]] = RecentDict(TARGETS_MAX)

    def add(self, target: str, request: ProxyRequest, began: float, client: str = "", **fields: Any) -> LeaseChoice:
        """Record a request that began to wait at `began`. `fields`: other fields of `LeaseChoice`."""
        now = self._now()
        choice = LeaseChoice(now, client, request, now - began, **fields)
        choices = self._targets[target] = self._targets.get(target) or deque(maxlen=CHOICES_MAX)
        choices.append(choice)
        return choice

    def of(self, target: str, client: str = "") -> list[LeaseChoice]:
        """Return the choices of a target, or only those of one client, newest first."""
        return [each for each in reversed(self._targets.get(target, ())) if client in ("", each.client)]


def _result(outcome: Outcome) -> str:
    if outcome.blame is Blame.NONE:
        return "successful"
    if outcome.blame is Blame.NOBODY and not outcome.reason:
        return "works"
    return f"{outcome.reason or 'failed'} ({outcome.blame})"
