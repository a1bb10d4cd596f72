"""Decide when to retry a failed fetch.

The back-off is exponential. Half of each interval is random, so clients that failed together do not retry together. A
retry waits at least as long as Retry-After says, up to `retry_after_max_s`. A host that is overloaded (429, 503) or
unreachable is blocked; a failure of one page (500, a broken transfer) does not block its host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lycosa.core.dates import http_date
from lycosa.core.errors import ConnectFailed, FetchError

RETRY_STATUSES = frozenset({408, 429, 500, 502, 503, 504, 522, 524})
OVERLOADED = frozenset({429, 503})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
RETRY_AFTER_CHARS_MAX = 64


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """At most `retries_max` retries. The interval starts at `base_s` and doubles up to `cap_s`.

    A Retry-After above `retry_after_max_s` counts as `retry_after_max_s`.
    """

    retries_max: int = 2
    base_s: float = 1.0
    cap_s: float = 60.0
    retry_after_max_s: float = 3600.0
    statuses: frozenset[int] = RETRY_STATUSES


class RetryDecision(NamedTuple):
    """Retry at `retry_at` (unix seconds), or never if it is None.

    The host is blocked until `block_host_until` (unix seconds; 0 if the host is not at fault). Reasons are counted, so
    one cause always has the same text.
    """

    retry_at: float | None
    block_host_until: float
    reason: str


def parse_retry_after(value: str, now: float, max_s: float = 3600.0) -> float | None:
    """Return the seconds to wait that a Retry-After field (RFC 9110 §10.2.3) asks for, from 0 to `max_s`; None for an
    invalid field."""
    value = value.strip()
    if not value or len(value) > RETRY_AFTER_CHARS_MAX:
        return None
    if value.isascii() and value.isdigit():
        return min(float(value), max_s)
    at = http_date(value, now)
    return None if at is None else min(max(0.0, at - now), max_s)


def decide_status(
    policy: RetryPolicy, attempts: int, status: int, retry_after: str, now: float, jitter: float
) -> RetryDecision:
    """Decide after a response. `attempts` counts the earlier failures; `jitter` is from 0 to 1."""
    retry_after_s = parse_retry_after(retry_after, now, policy.retry_after_max_s) or 0.0
    wait_s = max(backoff_s(policy, attempts, jitter), retry_after_s)
    blocked_until = now + wait_s if status in OVERLOADED else 0.0
    return _decision(policy, attempts, wait_s, blocked_until, str(status), now)


def decide_error(policy: RetryPolicy, attempts: int, error: FetchError, now: float, jitter: float) -> RetryDecision:
    """Decide after a failed transfer."""
    if not error.retry:
        return RetryDecision(None, 0.0, str(error))
    wait_s = backoff_s(policy, attempts, jitter)
    blocked_until = now + wait_s if isinstance(error, ConnectFailed) else 0.0
    return _decision(policy, attempts, wait_s, blocked_until, str(error), now)


def backoff_s(policy: RetryPolicy, attempts: int, jitter: float) -> float:
    """Return the seconds to wait: half the interval, plus `jitter` (0 to 1) times the other half."""
    interval_s = min(policy.cap_s, policy.base_s * 2.0 ** min(attempts, 32))
    return interval_s * (0.5 + 0.5 * jitter)


def _decision(
    policy: RetryPolicy, attempts: int, wait_s: float, blocked_until: float, reason: str, now: float
) -> RetryDecision:
    retry_at = now + wait_s if attempts < policy.retries_max else None
    return RetryDecision(retry_at, blocked_until, reason)
