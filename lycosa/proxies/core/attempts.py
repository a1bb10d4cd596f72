"""Failed attempts of requests that go through proxies, until a page comes or enough of them have failed.

A request that failed at its proxy, or was banned, is retried through another one, up to a number of proxies. That costs
none of its retries: it says something about the proxies, not about the page. After that many the page has failed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from lycosa.core.recent_dict import RecentDict
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

FAILED = frozenset({Blame.MISS, Blame.SITE, Blame.PROXY})
"""After these another proxy may get the page."""

REQUESTS_MAX = 10_000
"""Requests with failures; beyond that the one that failed longest ago starts anew."""

FORBIDDEN = "403"
FORBIDDEN_MAX = 2
"""Proxies that are blamed for a 403 of one page. Further ones are only suspects (MISS): the page may be forbidden for
everybody, and one such page must not take all proxies away from its site."""


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The failures of a request, its proxies, and how many of the failures were a 403."""

    count: int = 0
    proxies: frozenset[str] = frozenset()
    forbidden: int = 0


NONE = FailedAttempts()


class Attempts:
    """Up to `most` proxies are tried for a request, which may be named by any hashable key."""

    def __init__(self, most: int, requests_max: int = REQUESTS_MAX) -> None:
        self._most = most
        self._failed: RecentDict[Hashable, FailedAttempts] = RecentDict(requests_max)

    def failed_proxies(self, request: Hashable) -> frozenset[str]:
        """Return the keys of the proxies through which a request has failed."""
        return self._failed.get(request, NONE).proxies if self._failed else NONE.proxies

    def judge(self, request: Hashable, outcome: Outcome) -> Outcome:
        """Return the outcome to report to the pool: the same, unless it is one 403 too many."""
        is_forbidden = outcome.blame is Blame.SITE and outcome.reason == FORBIDDEN
        if is_forbidden and self._failed.get(request, NONE).forbidden >= FORBIDDEN_MAX:
            return replace(outcome, blame=Blame.MISS, rest_s=None)
        return outcome

    def add_failure(self, request: Hashable, proxy: str, outcome: Outcome) -> int:
        """Note a failure. Return the number of failures if no further proxy is to be tried, else 0."""
        before = self._failed.pop(request, NONE)
        forbidden = before.forbidden + (outcome.reason == FORBIDDEN)
        failed = FailedAttempts(before.count + 1, before.proxies | {proxy}, forbidden)
        if failed.count >= self._most:
            return failed.count
        self._failed[request] = failed
        return 0

    def forget(self, request: Hashable) -> None:
        """Note that a request got a response, whatever it says."""
        if self._failed:
            self._failed.pop(request, None)
