"""When an infohash is tried again whose metadata nobody delivered.

A frontier keeps no reason with a retry, and there may be 30 million of them: the milliseconds of its time say why, and
the microseconds how often our own limits were the reason, which says nothing of the torrent.
"""

from __future__ import annotations

import math

from lycosa.dht.core.crawl_funnel import CrawlOutcome

RETRY_DELAYS_S = (60.0, 15 * 60.0, 3600.0, 6 * 3600.0, 86_400.0, 3 * 86_400.0, 7 * 86_400.0, 30 * 86_400.0)
"""After the first failure, the second, ...; from then on the last. Peers come back within hours, or hardly ever."""

JITTER = 0.2
"""Share of a delay by which retries are spread, so that those of one hour do not come back as one crowd."""

POSTPONED_S, POSTPONED_MAX_S = 60.0, 6 * 3600.0
"""When our own limits were the reason, which may be over in a minute; after POSTPONED_SOON tries for each so much more,
up to the maximum. A host with thousands of torrents takes days for all; within hours a node may name one again."""
POSTPONED_SOON = 10
COUNTED_MAX = 999
OUR_OWN = {CrawlOutcome.POSTPONED, CrawlOutcome.NO_LOOKUP}


def retry_at(attempts: int, now: float, chance: float, failure: CrawlOutcome, before: float = 0.0) -> float:
    """Return the time of the next try after `attempts` failures before this one; `chance` is from 0 to 1.

    `before` is what the last call for this infohash returned.
    """
    postponed = min(_postponed(before), attempts)
    if failure in OUR_OWN:
        delay_s = min(POSTPONED_S * max(1, postponed - POSTPONED_SOON + 2), POSTPONED_MAX_S)
        postponed = min(postponed + 1, COUNTED_MAX)
    else:
        delay_s = RETRY_DELAYS_S[min(attempts - postponed, len(RETRY_DELAYS_S) - 1)]
    return math.ceil(now + delay_s * (1 + JITTER * chance)) + failure / 1_000 + postponed / 1_000_000


def last_failure(at: float) -> CrawlOutcome | None:
    """Return why the last try failed, from the time that `retry_at` returned; None for any other time."""
    try:
        return CrawlOutcome(round(at * 1_000_000) // 1_000 % 1_000)
    except ValueError:
        return None


def _postponed(at: float) -> int:
    return round(at * 1_000_000) % 1_000 if last_failure(at) is not None else 0
