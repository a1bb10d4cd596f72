"""How fast a host wants to be asked: from latencies, statuses and failures to the delay between two starts.

Two rules, and the larger delay of the two holds:

- by latency, as in Scrapy: with N requests wanted in flight the delay is latency / N; it moves there by the mean of
  the old and the new one, at once when that is slower, and never down on an answer that is not 200;
- by errors: 429, 503 and a host that cannot be reached double the delay, once for all that was on its way at the time;
  each good answer takes a sixteenth of that off again. A Retry-After is kept as one pause.

Pure: `now` is in unix seconds. Of HOSTS_MAX hosts the state is kept; the one that answered least recently is forgotten.
A Crawl-delay is the frontier's, which never goes below it.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

HOSTS_MAX = 20_000
OVERLOADED = frozenset({429, 503})
BACKOFF_MIN_S = 0.1
"""The least delay after an error, from which it is doubled."""

RECOVERY = 15 / 16
SMALLEST_S = 0.001
"""A back-off below this is over."""

CHANGE_MIN = 0.02
"""A delay that changes by less, as a part of it, is not told again before TELL_AGAIN_S."""

REPORT_AGAIN_S = 60.0
"""Whoever is told may have forgotten it meanwhile."""


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """Seconds, and `target_concurrency` requests in flight to a host on average."""

    start_delay_s: float = 5.0
    max_delay_s: float = 60.0
    min_delay_s: float = 0.0
    target_concurrency: float = 1.0


@dataclass(slots=True)
class HostThrottle:
    """The delay by latency, the one by errors, and when the latter was raised; `told_s` was told at `told_at`."""

    latency_s: float
    told_s: float
    backoff_s: float = 0.0
    raised_at: float = 0.0
    told_at: float = 0.0


class AutoThrottle:
    """The paces of many hosts. Its methods return the delay (seconds) from now on, None when it stays."""

    def __init__(self, settings: ThrottleSettings) -> None:
        self._settings = settings
        self._paces: OrderedDict[str, HostThrottle] = OrderedDict()

    def __len__(self) -> int:
        return len(self._paces)

    def answered(
        self, host: str, status: int, latency_s: float, started_at: float, now: float, retry_after_s: float = 0.0
    ) -> float | None:
        """An answer came; `latency_s` is from the start of its request to the first byte."""
        pace = self._pace(host)
        self._follow(pace, latency_s, status)
        if status in OVERLOADED:
            return self._back_off(pace, started_at, now, retry_after_s)
        if pace.backoff_s and status < 500 and started_at >= pace.raised_at:
            pace.backoff_s = pace.backoff_s * RECOVERY if pace.backoff_s > SMALLEST_S else 0.0
        return self._told(pace, max(pace.latency_s, pace.backoff_s), now)

    def failed(self, host: str, now: float) -> float | None:
        """The host could not be reached; nobody knows since when, so that counts once in the time of the delay."""
        pace = self._pace(host)
        return self._back_off(pace, now - max(pace.latency_s, pace.backoff_s), now, 0.0)

    def _follow(self, pace: HostThrottle, latency_s: float, status: int) -> None:
        settings = self._settings
        target_s = latency_s / settings.target_concurrency
        new_s = max(target_s, (pace.latency_s + target_s) / 2)
        new_s = min(max(settings.min_delay_s, new_s), settings.max_delay_s)
        if status == 200 or new_s > pace.latency_s:
            pace.latency_s = new_s

    def _back_off(self, pace: HostThrottle, started_at: float, now: float, retry_after_s: float) -> float | None:
        if started_at >= pace.raised_at:
            doubled_s = 2 * max(pace.latency_s, pace.backoff_s, BACKOFF_MIN_S / 2)
            pace.backoff_s, pace.raised_at = min(doubled_s, self._settings.max_delay_s), now
        return self._told(pace, max(pace.latency_s, pace.backoff_s, retry_after_s), now)

    def _told(self, pace: HostThrottle, delay_s: float, now: float) -> float | None:
        if abs(delay_s - pace.told_s) <= CHANGE_MIN * pace.told_s and abs(now - pace.told_at) < REPORT_AGAIN_S:
            return None
        pace.told_s, pace.told_at = delay_s, now
        return delay_s

    def _pace(self, host: str) -> HostThrottle:
        pace = self._paces.get(host)
        if pace is None:
            start_s = max(self._settings.start_delay_s, self._settings.min_delay_s)
            pace = self._paces[host] = HostThrottle(start_s, start_s)
            if len(self._paces) > HOSTS_MAX:
                self._paces.popitem(last=False)
        else:
            self._paces.move_to_end(host)
        return pace
