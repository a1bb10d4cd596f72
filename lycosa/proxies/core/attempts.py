"""What requests have behind them on their way through proxies, until a page comes or enough of them have failed.

A request that failed by its proxy, or was banned, is sent through another one, up to a number of times. That costs none
of its retries: it says something of the proxies, not of the page. When so many have failed it is the page that fails.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, replace

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

FAILED = frozenset({Blame.MISS, Blame.SITE, Blame.PROXY})
"""After these another proxy may bring the page."""

TRIED_MAX = 10_000
"""Requests that are remembered; of more, the one that failed longest ago begins anew."""

FORBIDDEN = "403"
FORBIDDEN_BLAMED = 2
"""So many proxies are blamed for a 403 of one page. Further ones are suspects only (MISS): it may be forbidden to all,
and one such page must not take every proxy away from its site."""


@dataclass(frozen=True, slots=True)
class Tried:
    """How often a request has failed, through which proxies, and how often by a 403."""

    count: int = 0
    proxies: frozenset[str] = frozenset()
    forbidden: int = 0


NEVER = Tried()


class Attempts:
    """`most` proxies are tried for a request. Whatever can be a key names one."""

    def __init__(self, most: int, remembered: int = TRIED_MAX) -> None:
        self._most = most
        self._remembered = remembered
        self._tried: OrderedDict[Hashable, Tried] = OrderedDict()

    def __len__(self) -> int:
        return len(self._tried)

    def avoided(self, request: Hashable) -> frozenset[str]:
        """Return the keys of the proxies through which it has failed."""
        return self._tried.get(request, NEVER).proxies if self._tried else NEVER.proxies

    def judged(self, request: Hashable, outcome: Outcome) -> Outcome:
        """Return what the pool is told of an outcome: the same, unless it is one 403 too many."""
        is_forbidden = outcome.blame is Blame.SITE and outcome.reason == FORBIDDEN
        if is_forbidden and self._tried.get(request, NEVER).forbidden >= FORBIDDEN_BLAMED:
            return replace(outcome, blame=Blame.MISS, rest_s=None)
        return outcome

    def failed(self, request: Hashable, proxy: str, outcome: Outcome) -> int:
        """Note that it failed through this proxy. Return how often it has, if that is enough, else 0."""
        before = self._tried.pop(request, NEVER)
        forbidden = before.forbidden + (outcome.reason == FORBIDDEN)
        now = Tried(before.count + 1, before.proxies | {proxy}, forbidden)
        if now.count >= self._most:
            return now.count
        self._tried[request] = now
        if len(self._tried) > self._remembered:
            self._tried.popitem(last=False)
        return 0

    def over(self, request: Hashable) -> None:
        """It was answered, whatever the answer is."""
        if self._tried:
            self._tried.pop(request, None)
