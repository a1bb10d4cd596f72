"""What became of the infohashes: one count for each way out of each stage."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum


class CrawlOutcome(IntEnum):
    """The ways of an infohash, in the order of the stages. The numbers are stable: logs and metrics may use them."""

    SAMPLED = 10
    """Named by a node that was asked for a sample."""
    ANNOUNCED = 11
    """Announced to our own node."""
    WANTED = 12
    """Our own node was asked for its peers."""
    DROPPED = 19
    """Announced, or asked for, faster than it may be queued. It will be sampled."""
    NEW = 20
    KNOWN = 21
    """Queued before."""
    MALFORMED = 22
    """No infohash: all bytes are the same."""
    DISTRUSTED = 23
    """Named by a host whose infohashes nobody has."""
    ALREADY_STORED = 30
    """Stored before its turn came: the other infohash of a hybrid torrent, or by another crawler."""
    FORBIDDEN = 31
    """Denied or evicted, so nobody is asked."""
    TRIED = 40
    FETCHED_FROM_SAMPLER = 41
    """Peers of the node that sampled it, or the peer that announced it, delivered."""
    FETCHED_AFTER_LOOKUP = 42
    NO_PEERS = 43
    NO_METADATA = 44
    """There were peers, but none delivered."""
    BAD_INFO = 45
    """The metadata fits the infohash but describes no torrent."""
    POSTPONED = 46
    """Our own limits forbade a lookup, or connections to its peers: tried again soon."""
    NO_LOOKUP = 47
    """Nobody who named it had peers, and the lookups of this minute were used up: tried again later."""
    REFUSED_BY_RULES = 50
    """A rule forbids its names."""
    STORED = 60
    STORED_BEFORE = 61
    REFUSED = 62
    """The store does not take it, for example because the torrent is private."""
    COUNTED = 70
    """The peers of a stored torrent were counted."""
    NOT_COUNTED = 71
    """No node answered its scrape."""


class Funnel:
    """Counts since the start."""

    def __init__(self) -> None:
        self.counts: Counter[CrawlOutcome] = Counter()

    def count(self, outcome: CrawlOutcome, times: int = 1) -> None:
        """Count an outcome."""
        self.counts[outcome] += times

    def total(self, *outcomes: CrawlOutcome) -> int:
        """Return the sum of these counts."""
        return sum(self.counts[each] for each in outcomes)

    @property
    def discovered(self) -> int:
        """Infohashes that were named to us, the same one as often as it was."""
        return self.total(CrawlOutcome.SAMPLED, CrawlOutcome.ANNOUNCED, CrawlOutcome.WANTED)

    @property
    def fetched(self) -> int:
        """Infohashes whose metadata a peer delivered."""
        return self.total(CrawlOutcome.FETCHED_FROM_SAMPLER, CrawlOutcome.FETCHED_AFTER_LOOKUP)
