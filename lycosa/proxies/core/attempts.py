"""Counts the failed attempts of each request through proxies, until a response arrives or too many have failed.

A request whose proxy failed or was banned is retried through another proxy, up to a maximum number of proxies. These
attempts do not use up the retries of the request, because the failures say something about the proxies, not about the
page. If all of these proxies fail, the page has failed.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

from lycosa.core.recent_dict import RecentDict
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome

FAILED = frozenset({Blame.MISS, Blame.SITE, Blame.PROXY})
"""Outcomes after which another proxy may get the page."""

REQUESTS_MAX = 10_000
"""Maximum number of requests whose failures are stored. Beyond it the request that failed longest ago is forgotten."""

FORBIDDEN = "403"
FORBIDDEN_MAX = 2
"""Maximum number of proxies that are blamed for a 403 of one page. Further proxies are only suspected (MISS): the page
may be forbidden for everybody, and one such page must not ban all proxies of its site."""


@dataclass(frozen=True, slots=True)
class FailedAttempts:
    """The number of failures of a request, the proxies that failed, and how many of the failures were a 403."""

    count: int = 0
    proxies: frozenset[str] = frozenset()
    forbidden: int = 0


NONE = FailedAttempts()


class Attempts:
    """The failed attempts by request. Any hashable key may identify a request.

    At most `proxies_max` proxies are tried for one request.
    """

    def __init__(self, proxies_max: int, requests_max: int = REQUESTS_MAX) -> None:
        self._proxies_max = proxies_max
        self._failed: RecentDict[Hashable, FailedAttempts] = RecentDict(requests_max)

    def failed_proxies(self, request: Hashable) -> frozenset[str]:
        """Return the keys of the proxies through which a request has failed."""
        return self._failed.get(request, NONE).proxies if self._failed else NONE.proxies

    def judge(self, request: Hashable, outcome: Outcome) -> Outcome:
        """Return the outcome to report to the pool.

        It differs from `outcome` only for a 403: after FORBIDDEN_MAX 403s of the request, a further 403 is a MISS.
        """
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
        """Forget the failures of a request. Call this after any response to the request."""
        if self._failed:
            self._failed.pop(request, None)
