"""Counts the failed attempts of each request, until a response arrives or too many proxies have failed.

A request whose proxy failed or was banned is retried through another proxy, without using up its own retries: the
proxies are to blame, not the page. If the maximum number of proxies fails, the page has failed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from lycosa.core.recent_dict import RecentDict
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

FAILED = frozenset({Blame.MISS, Blame.SITE, Blame.PROXY})
"""Outcomes after which another proxy may get the page."""

REQUESTS_MAX = 10_000
"""Beyond this number of requests, the one that failed longest ago is forgotten."""

FORBIDDEN = "403"
FORBIDDEN_MAX = 2
"""Maximum number of proxies blamed for a 403 of one page. Further 403s count as a MISS: a page that is forbidden to
everybody must not get all proxies banned from its site."""


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The number of failures of a request, the keys of the proxies that failed, and the number of 403s."""

    count: int = 0
    proxies: frozenset[str] = frozenset()
    forbidden: int = 0


NONE = FailedAttempts()


class Attempts:
    """The failed attempts by request (any hashable key). At most `proxies_max` proxies are tried for one request."""

    def __init__(self, proxies_max: int, requests_max: int = REQUESTS_MAX) -> None:
        self._proxies_max = proxies_max
        self._failed: RecentDict[Hashable, FailedAttempts] = RecentDict(requests_max)

    def failed_proxies(self, request: Hashable) -> frozenset[str]:
        return self._failed.get(request, NONE).proxies if self._failed else NONE.proxies

    def judge(self, request: Hashable, outcome: Outcome) -> Outcome:
        """Return the outcome to report to the pool: see FORBIDDEN_MAX."""
        is_forbidden = outcome.blame is Blame.SITE and outcome.reason == FORBIDDEN
        if is_forbidden and self._failed.get(request, NONE).forbidden >= FORBIDDEN_MAX:
            return replace(outcome, blame=Blame.MISS, rest_s=None)
        return outcome

    def add_failure(self, request: Hashable, proxy: str, outcome: Outcome) -> int:
        """Record a failure. Return the number of failures if no other proxy should be tried, otherwise 0."""
        before = self._failed.pop(request, NONE)
        forbidden = before.forbidden + (outcome.reason == FORBIDDEN)
        failed = FailedAttempts(before.count + 1, before.proxies | {proxy}, forbidden)
        if failed.count >= self._proxies_max:
            return failed.count
        self._failed[request] = failed
        return 0

    def forget(self, request: Hashable) -> None:
        """Call this when a request ends without an outcome in FAILED."""
        if self._failed:
            self._failed.pop(request, None)
