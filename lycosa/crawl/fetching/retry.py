"""Decides whether and when a request is retried."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from lycosa.core.errors import FetchError, RetryRequest
from lycosa.core.retry import RetryPolicy, decide_error, decide_status
from lycosa.crawl.engine.verdict import Failed, failed_after, reason_text
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.spiders.response import Response
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock


class RetryDecider:
    """Decides by `policy`, unless `max_retry_times` or `dont_retry` in the request's meta overrides it.

    `chance` returns a random number from 0 to 1, for the jitter of the back-off.
    """

    def __init__(self, policy: RetryPolicy, clock: Clock, chance: Callable[[], float], stats: StatsCollector) -> None:
        self._policy = policy
        self._clock = clock
        self._chance = chance
        self._stats = stats
        self.statuses = policy.statuses

    def after_status(self, request: Request, response: Response) -> Failed:
        after = response.headers.get("retry-after")
        now, attempts = self._clock.now(), attempts_of(request)
        decision = decide_status(self._policy_of(request), attempts, response.status, after, now, self._chance())
        return self._count(failed_after(decision, response))

    def after_error(self, request: Request, error: FetchError) -> Failed:
        now, attempts = self._clock.now(), attempts_of(request)
        verdict = failed_after(decide_error(self._policy_of(request), attempts, error, now, self._chance()), error)
        return self._count(verdict) if error.retry else verdict

    def after_refusal(self, request: Request, reason: str, response: Response) -> Failed:
        """Return the verdict on a request that its site refused through every proxy that was tried."""
        return self.after_error(request, FetchError(reason))._replace(cause=response)

    def on_request(self, request: Request, raised: RetryRequest) -> Failed:
        verdict = self.after_error(request, FetchError(reason_text(str(raised)), retry=True))
        if verdict.retry_at is not None and raised.delay_s is not None:
            verdict = verdict._replace(retry_at=self._clock.now() + max(0.0, raised.delay_s))
        return verdict._replace(cause=raised)

    def _count(self, verdict: Failed) -> Failed:
        if verdict.retry_at is None:
            self._stats.inc_value("retry/max_reached")
        else:
            self._stats.inc_value("retry/count")
            self._stats.inc_value(f"retry/reason_count/{verdict.reason}")
        return verdict

    def _policy_of(self, request: Request) -> RetryPolicy:
        if request.get_meta("dont_retry"):
            return replace(self._policy, retries_max=0)
        times = request.get_meta("max_retry_times")
        return self._policy if times is None else replace(self._policy, retries_max=int(times))


def attempts_of(request: Request) -> int:
    """Return the number of failed attempts so far."""
    return request.record.attempts if request.record is not None else 0
