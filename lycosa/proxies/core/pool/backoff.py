"""The duration of a cool-down: exponential with full jitter (Exponential Backoff And Jitter, M. Brooker 2015).

Because of the jitter, proxies that failed together do not return together.
"""

from __future__ import annotations

COOL_MIN_S = 1.0
DOUBLINGS_MAX = 32


def cool_s(base_s: float, max_s: float, row: int, draw: float, retry_after_s: float | None = None) -> float:
    """Return the seconds of a cool-down after `row` failures in a row (1, 2, …); `draw`: a random number (0 to 1).

    After a Retry-After, the cool-down is that time plus up to a tenth, at most `max_s`. Otherwise it is at least
    COOL_MIN_S.
    """
    if retry_after_s is not None and retry_after_s > 0:
        return min(retry_after_s * (1 + draw / 10), max(max_s, COOL_MIN_S))
    interval_s = min(max_s, base_s * 2.0 ** min(row - 1, DOUBLINGS_MAX))
    return max(COOL_MIN_S, draw * interval_s)
