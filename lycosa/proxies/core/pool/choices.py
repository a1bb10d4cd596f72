"""Which proxies were lent last for a target, and why; or why none was. Of one process, as long as it runs.

What holds now is said by `proxies.core.explain`; this is what held then, as far as who asks for a lease hears of it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.pool.target import ProxyRequest

EACH_MAX = 20
"""Choices of a target that are remembered."""

TARGETS_MAX = 1_000
"""Targets; the one that was asked for longest ago is forgotten."""

WAITED_S = 0.05
"""Who waited for less is not told so."""


@dataclass(slots=True)
class Choice:
    """One. `by` is who asked, `proxy` the name of what he got ("": none, and `refused` says why).

    `among`, `rebound`: as of a lease. `came`: what came of it, "" as long as nobody knows.
    """

    at: float
    by: str
    request: ProxyRequest
    waited_s: float
    proxy: str = ""
    among: int = 0
    rebound: bool = False
    refused: str = ""
    came: str = ""

    def why(self) -> str:
        """Say why it was this one."""
        if self.refused:
            return self.refused
        asked = ", ".join(f"{name}={value}" for name, value in self.request.tags.items())
        return "".join(
            (
                f"drawn among {self.among:,}" if self.among else "its session has it",
                f" with {asked}" if asked else "",
                ", since its session can have its own no more" if self.rebound else "",
                f", without {len(self.request.avoid):,} excluded by the request" if self.request.avoid else "",
                f", waited {self.waited_s:.1f} s" if self.waited_s >= WAITED_S else "",
            )
        )

    def ended(self, outcomes: Sequence[Outcome], *, in_time: bool = True) -> None:
        """It was given back with these outcomes; the last bad one counts, else the last."""
        if not in_time:
            self.came = "given back too late"
            return
        bad = [each for each in outcomes if each.blame not in (Blame.NONE, Blame.NOBODY)]
        last = (bad or list(outcomes))[-1:]
        self.came = _came(last[0]) if last else "not used"


class Choices:
    """The last ones of each target. `now` in unix seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._of: OrderedDict[str, deque[Choice]] = OrderedDict()

    def note(self, target: str, request: ProxyRequest, began: float, by: str = "", **what: Any) -> Choice:
        """Remember that somebody asked since `began`, and `what` he hears now: fields of `Choice`."""
        now = self._now()
        choice = Choice(now, by, request, now - began, **what)
        self._of.setdefault(target, deque(maxlen=EACH_MAX)).append(choice)
        self._of.move_to_end(target)
        if len(self._of) > TARGETS_MAX:
            self._of.popitem(last=False)
        return choice

    def of(self, target: str, by: str = "") -> list[Choice]:
        """Return those of a target, the newest first; only those of one who asked, if he is named."""
        return [each for each in reversed(self._of.get(target, ())) if by in ("", each.by)]


def _came(outcome: Outcome) -> str:
    """Say what came, and whose fault it was, if it was anybody's."""
    if outcome.blame is Blame.NONE:
        return "went well"
    if outcome.blame is Blame.NOBODY and not outcome.reason:
        return "it works"
    return f"{outcome.reason or 'failed'} ({outcome.blame})"
