"""When to try again: from what happened to a decision. Time and chance are arguments.

Back-off is exponential with jitter (half of each interval is drawn by chance, so that clients that failed together
do not come back together), and never sooner than the server's Retry-After. A host that says it is overloaded (429, 503)
or cannot be reached rests as a whole; a page that fails alone (500, a broken transfer) does not hold up its host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from lycosa.core.errors import ConnectFailed, FetchError

RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 522, 524})
OVERLOADED = frozenset({429, 503})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
RETRY_AFTER_CHARS_MAX = 64
DATE = re.compile(
    r"\w{3}, (?P<day>\d\d) (?P<month>\w{3}) (?P<year>\d{4}) (?P<time>\d\d:\d\d:\d\d) GMT"
    r"|\w{6,9}, (?P<day2>\d\d)-(?P<month2>\w{3})-(?P<year2>\d\d) (?P<time2>\d\d:\d\d:\d\d) GMT"
    r"|\w{3} (?P<month3>\w{3}) (?P<day3>[ \d]\d) (?P<time3>\d\d:\d\d:\d\d) (?P<year3>\d{4})",
    re.ASCII,
)
"""The three forms of an HTTP date (RFC 9110 §5.6.7): IMF-fixdate, RFC 850, asctime."""

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`retries_max` more attempts after the first; waits from `base_s` doubling up to `cap_s`.

    A Retry-After of more than `retry_after_max_s` is cut to that.
    """

    retries_max: int = 2
    base_s: float = 1.0
    cap_s: float = 60.0
    retry_after_max_s: float = 3600.0
    statuses: frozenset[int] = RETRY_STATUSES


class Decision(NamedTuple):
    """Try again at `retry_at` (unix seconds), never when that is None.

    The host rests until `block_host_until`, 0 when it is not to blame. `reason` is the same words for the same cause.
    """

    retry_at: float | None
    block_host_until: float
    reason: str


def parse_retry_after(value: str, now: float, max_s: float = 3600.0) -> float | None:
    """Return the seconds that a Retry-After field asks for (RFC 9110 §10.2.3), 0 to `max_s`; None for nonsense."""
    value = value.strip()
    if not value or len(value) > RETRY_AFTER_CHARS_MAX:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), max_s)
    at = http_date(value, now)
    return None if at is None else min(max(0.0, at - now), max_s)


def decide_status(
    policy: RetryPolicy, attempts: int, status: int, retry_after: str, now: float, jitter: float
) -> Decision:
    """Decide after a response. `attempts` counts the failures before this one; `jitter` is from 0 to 1."""
    asked_s = parse_retry_after(retry_after, now, policy.retry_after_max_s)
    wait_s = max(backoff_s(policy, attempts, jitter), asked_s or 0.0)
    rests = now + wait_s if status in OVERLOADED else 0.0
    return _decision(policy, attempts, wait_s, rests, str(status), now)


def decide_error(policy: RetryPolicy, attempts: int, error: FetchError, now: float, jitter: float) -> Decision:
    """Decide after a transfer that failed. An error that says it is final is not tried again."""
    if not error.retry:
        return Decision(None, 0.0, str(error))
    wait_s = backoff_s(policy, attempts, jitter)
    rests = now + wait_s if isinstance(error, ConnectFailed) else 0.0
    return _decision(policy, attempts, wait_s, rests, str(error), now)


def backoff_s(policy: RetryPolicy, attempts: int, jitter: float) -> float:
    """Return the seconds to wait: half of the interval for sure, the rest by chance, so that no retry is at once."""
    interval_s = min(policy.cap_s, policy.base_s * 2.0 ** min(attempts, 32))
    return interval_s * (0.5 + 0.5 * jitter)


def _decision(policy: RetryPolicy, attempts: int, wait_s: float, rests: float, reason: str, now: float) -> Decision:
    if attempts >= policy.retries_max:
        return Decision(None, rests, reason)
    return Decision(now + wait_s, rests, reason)


def http_date(value: str, now: float) -> float | None:
    """Return the unix seconds of an HTTP date in one of its three forms (RFC 9110 §5.6.7); None for nonsense."""
    found = DATE.fullmatch(value)
    if found is None:
        return None
    day, month, year, clock = (
        next(found[name + form] for form in ("", "2", "3") if found[name + form])
        for name in ("day", "month", "year", "time")
    )
    hour, minute, second = map(int, clock.split(":"))
    try:
        return datetime(
            _year(year, now), MONTHS.index(month) + 1, int(day), hour, minute, second, tzinfo=UTC
        ).timestamp()
    except ValueError:
        return None


def _year(digits: str, now: float) -> int:
    """Two digits that seem more than 50 years ahead mean the most recent such year in the past (RFC 9110 §5.6.7)."""
    if len(digits) == 4:
        return int(digits)
    this = datetime.fromtimestamp(now, UTC).year
    year = this - this % 100 + int(digits)
    return year - 100 if year > this + 50 else year
