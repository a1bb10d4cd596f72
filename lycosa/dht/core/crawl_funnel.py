"""Counts what became of the infohashes: one outcome for each way to leave a stage."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum


class CrawlOutcome(IntEnum):
    """Outcomes for an infohash, in the order of the stages. The numbers are stable: stored retry times encode them."""

    SAMPLED = 10
    """A node returned it in a sample."""
    ANNOUNCED = 11
    """A peer announced it to our own node."""
    WANTED = 12
    """Another node requested its peers from our own node."""
    DROPPED = 19
    """Not queued, because announces or requests came too fast. It may appear in a sample later."""
    NEW = 20
    KNOWN = 21
    """Queued before."""
    MALFORMED = 22
    """Not a real infohash: all bytes are the same."""
    DISTRUSTED = 23
    """Sampled from a host whose infohashes hardly ever lead to metadata."""
    ALREADY_STORED = 30
    """Stored before it was tried: through the other infohash of a hybrid torrent, by another crawler, or before a
    crash."""
    FORBIDDEN = 31
    """Denied or evicted. The other infohash of a hybrid is checked only after the fetch."""
    TRIED = 40
    FETCHED_FROM_SAMPLER = 41
    """Fetched from a peer that announced it, or that a sampler returned."""
    FETCHED_AFTER_LOOKUP = 42
    NO_PEERS = 43
    NO_METADATA = 44
    """Peers were found, but none delivered the metadata."""
    BAD_INFO = 45
    """The metadata fits the infohash but describes no torrent."""
    POSTPONED = 46
    """Our own limits prevented a lookup or the connections to its peers."""
    NO_LOOKUP = 47
    """No sampler returned a peer, and this minute's lookups were used up."""
    REFUSED_BY_RULES = 50
    """A rule forbids its names."""
    STORED = 60
    STORED_BEFORE = 61
    """Fetched, but already in the store when it was written."""
    REFUSED = 62
    """The store refused it, for example because the torrent is private."""
    EVICTED = 63
    """Removed from a full store to make room."""
    COUNTED = 70
    """A scrape counted the seeders and leechers of a stored torrent."""
    NOT_COUNTED = 71
    """No node answered the scrape of a stored torrent."""


class Funnel:
    """Counts since the start."""

    def __init__(self) -> None:
        self.counts: Counter[CrawlOutcome] = Counter()

    def count(self, outcome: CrawlOutcome, times: int = 1) -> None:
        self.counts[outcome] += times

    def total(self, *outcomes: CrawlOutcome) -> int:
        return sum(self.counts[each] for each in outcomes)

    @property
    def discovered(self) -> int:
        """Number of discoveries. An infohash that is discovered again counts again."""
        return self.total(CrawlOutcome.SAMPLED, CrawlOutcome.ANNOUNCED, CrawlOutcome.WANTED)

    @property
    def fetched(self) -> int:
        return self.total(CrawlOutcome.FETCHED_FROM_SAMPLER, CrawlOutcome.FETCHED_AFTER_LOOKUP)
