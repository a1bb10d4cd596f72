"""Decides when an infohash is tried again after no peer delivered its metadata.

The frontier stores no reason with a retry, and there may be 30 million retries. So the time of a retry encodes the
reason in its milliseconds, and the number of failures caused by our own limits in its microseconds.
"""

from __future__ import annotations

import math

from lycosa.dht.core.crawl_funnel import CrawlOutcome

RETRY_DELAYS_S = (60.0, 15 * 60.0, 3600.0, 6 * 3600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
"""After the first failure, the second, and so on; the last delay repeats. Peers return within hours or hardly ever."""

JITTER = 0.2
"""Maximum share of the delay that is added at random, so that retries do not bunch up."""

POSTPONED_S, POSTPONED_MAX_S = 60.0, 6 * 3600.0
"""Delay after a failure caused by our own limits. After POSTPONED_SOON such failures, each further one adds
POSTPONED_S, up to the maximum. If one host is the only peer of thousands of torrents, our limits per host spread their
tries over days, so most tries at short intervals would only be postponed again."""
POSTPONED_SOON = 10
COUNTED_MAX = 999
OUR_OWN = {CrawlOutcome.POSTPONED, CrawlOutcome.NO_LOOKUP}


def retry_at(attempts: int, now: float, chance: float, failure: CrawlOutcome, before: float = 0.0) -> float:
    """Return the time of the next try. `attempts` is the number of earlier failures; `chance` is from 0 to 1.

    `before` is the result of the previous call for this infohash.
    """
    postponed = min(_postponed(before), attempts)
    if failure in OUR_OWN:
        delay_s = min(POSTPONED_S * max(1, postponed - POSTPONED_SOON + 2), POSTPONED_MAX_S)
        postponed = min(postponed + 1, COUNTED_MAX)
    else:
        delay_s = RETRY_DELAYS_S[min(attempts - postponed, len(RETRY_DELAYS_S) - 1)]
    return math.ceil(now + delay_s * (1 + JITTER * chance)) + failure / 1_000 + postponed / 1_000_000


def last_failure(at: float) -> CrawlOutcome | None:
    """Return the reason encoded in a time from `retry_at`; None for any other time."""
    try:
        return CrawlOutcome(round(at * 1_000_000) // 1_000 % 1_000)
    except ValueError:
        return None


def _postponed(at: float) -> int:
    return round(at * 1_000_000) % 1_000 if last_failure(at) is not None else 0
