"""Auto-throttle: computes the delay of a host from its latencies, statuses and failures.

The larger of two delays applies:

- By latency, as in Scrapy: with N requests wanted in flight, the target is latency / N. The new delay is the mean
  of the old delay and the target, but at least the target. Only a status of 200 can lower this delay.
- By errors: a 429, a 503, a failed connection or a timeout sets this delay to twice the larger of the two delays.
  Errors of requests that started before this do not double it again. Each response to a later request lowers it by
  a sixteenth, if the status is below 500 and not 429. The delay returned for a 429 or 503 is at least its
  Retry-After.

Times are unix seconds. Only the HOSTS_MAX most recently updated hosts are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from lycosa.core.recent_dict import RecentDict

HOSTS_MAX = 20_000
OVERLOADED = frozenset({429, 503})
BACKOFF_MIN_S = 0.1

RECOVERY = 15 / 16
SMALLEST_S = 0.001
"""A smaller back-off counts as 0."""

CHANGE_MIN = 0.02
"""A smaller relative change is not reported again within REPORT_AGAIN_S."""

REPORT_AGAIN_S = 60.0
"""An unchanged delay is reported again after this time: the frontier may have dropped the host."""


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """`target_concurrency` is the wanted average number of requests in flight to a host."""

    start_delay_s: float = 5.0
    max_delay_s: float = 60.0
    min_delay_s: float = 0.0
    target_concurrency: float = 1.0


@dataclass(slots=True)
class HostThrottle:
    """The delays of a host by latency and by errors, and the last reported delay."""

    latency_delay_s: float
    reported_s: float
    backoff_s: float = 0.0
    raised_at: float = 0.0
    """When `backoff_s` was last doubled."""
    reported_at: float = 0.0


class AutoThrottle:
    """The throttles of many hosts. The methods return a new delay in seconds; None if there is nothing to report."""

    def __init__(self, settings: ThrottleSettings) -> None:
        self._settings = settings
        self._hosts: RecentDict[str, HostThrottle] = RecentDict(HOSTS_MAX)

    def record_response(
        self, host: str, status: int, latency_s: float, started_at: float, now: float, retry_after_s: float = 0.0
    ) -> float | None:
        """`latency_s` is from the start of the request to the first byte."""
        throttle = self._throttle(host)
        self._follow_latency(throttle, latency_s, status)
        if status in OVERLOADED:
            return self._back_off(throttle, started_at, now, retry_after_s)
        # Requests that started before the last error say nothing about the delay since then.
        if throttle.backoff_s and status < 500 and started_at >= throttle.raised_at:
            throttle.backoff_s = throttle.backoff_s * RECOVERY if throttle.backoff_s > SMALLEST_S else 0.0
        return self._report(throttle, max(throttle.latency_delay_s, throttle.backoff_s), now)

    def record_failure(self, host: str, now: float) -> float | None:
        throttle = self._throttle(host)
        # The start of the request is unknown. Failures within one delay count only once.
        started_at = now - max(throttle.latency_delay_s, throttle.backoff_s)
        return self._back_off(throttle, started_at, now, 0.0)

    def _follow_latency(self, throttle: HostThrottle, latency_s: float, status: int) -> None:
        settings = self._settings
        target_s = latency_s / settings.target_concurrency
        new_s = max(target_s, (throttle.latency_delay_s + target_s) / 2)
        new_s = min(max(settings.min_delay_s, new_s), settings.max_delay_s)
        if status == 200 or new_s > throttle.latency_delay_s:
            throttle.latency_delay_s = new_s

    def _back_off(self, throttle: HostThrottle, started_at: float, now: float, retry_after_s: float) -> float | None:
        if started_at >= throttle.raised_at:
            doubled_s = 2 * max(throttle.latency_delay_s, throttle.backoff_s, BACKOFF_MIN_S / 2)
            throttle.backoff_s, throttle.raised_at = min(doubled_s, self._settings.max_delay_s), now
        return self._report(throttle, max(throttle.latency_delay_s, throttle.backoff_s, retry_after_s), now)

    def _report(self, throttle: HostThrottle, delay_s: float, now: float) -> float | None:
        is_small_change = abs(delay_s - throttle.reported_s) <= CHANGE_MIN * throttle.reported_s
        if is_small_change and abs(now - throttle.reported_at) < REPORT_AGAIN_S:
            return None
        throttle.reported_s, throttle.reported_at = delay_s, now
        return delay_s

    def _throttle(self, host: str) -> HostThrottle:
        throttle = self._hosts.get(host)
        if throttle is None:
            start_s = max(self._settings.start_delay_s, self._settings.min_delay_s)
            throttle = HostThrottle(start_s, start_s)
        self._hosts[host] = throttle
        return throttle
