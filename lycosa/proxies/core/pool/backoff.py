"""How long somebody rests: exponential, with full jitter, so that those who failed together do not come back together.

(Exponential Backoff And Jitter, M. Brooker 2015: the next wait is drawn from zero to the whole interval.)
"""

from __future__ import annotations

COOL_MIN_S = 1.0
"""Nobody comes back sooner, whatever was drawn."""

DOUBLINGS_MAX = 32


def cool_s(base_s: float, max_s: float, row: int, draw: float, asked_s: float | None = None) -> float:
    """Return the seconds of a rest after `row` failures in a row (1, 2, …); `draw` is from 0 to 1.

    What the server asked for (Retry-After) is kept, to `max_s`, with up to a tenth more.
    """
    if asked_s is not None and asked_s > 0:
        return min(asked_s * (1 + draw / 10), max(max_s, COOL_MIN_S))
    interval_s = min(max_s, base_s * 2.0 ** min(row - 1, DOUBLINGS_MAX))
    return max(COOL_MIN_S, draw * interval_s)
