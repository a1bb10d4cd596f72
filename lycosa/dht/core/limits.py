"""Limits what a node sends: messages per host, bytes, and newly contacted addresses.

libtorrent bans a host for 5 minutes after 50 messages in 10 seconds. Home routers drop connections when a node contacts
too many addresses at once. All tables are bounded.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from lycosa.core.rate_limit import ROUNDING_S, RateLimit
from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import site_of

QUERIES_PER_S = 1.0
QUERIES_BURST = 4
"""Rate and burst of queries to one host: bitmagnet's values."""
ANSWERS_PER_S = 5.0
ANSWERS_BURST = 50
"""Rate and burst of answered queries from one host: libtorrent's 50 in 10 seconds."""
HOSTS_MAX = 131_072
"""Enough for 4 seconds of a 2 MB/s flood: 31,250 queries of 64 bytes a second, each from another host."""
ADDRESSES_MAX = 131_072
"""Enough for a minute with 2,000 queries/s to different endpoints."""
BYTES_PER_S = 100_000.0
"""0.8 Mbit/s. A node on a home line answers a few dozen queries a second. libtorrent's default is 8,000 bytes
per second."""
NEW_ADDRESSES_PER_MINUTE = 1_000
"""Home routers hold 4,000 to 16,000 connections for some minutes."""
QUERY_BYTES = 120
REFUSED_WAIT_S = 1.0
"""Delay of a query that the limit of new addresses or a full table of hosts refused."""
BANDWIDTH_BURST_S = 2.0
"""The burst after an idle time is what the full rate allows in this many seconds."""
QUERIES_RESERVE = 0.25
"""Share of the bandwidth burst that is reserved for our queries, so that answers to a flood cannot use it up."""
TCP = b"tcp"
"""Prefix for the endpoints of TCP connections: routers on the way keep separate entries for TCP and UDP."""
NEW_ADDRESSES_BURST_S = 10.0
"""The burst is what the full rate allows in this many seconds."""
MINUTE_S = 60.0


class TokenBucket:
    """Limits an average rate, and allows bursts."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._rounding = ROUNDING_S * per_s
        self._filled_at: float | None = None

    def take(self, amount: float, now: float, *, reserve: float = 0.0) -> bool:
        """Take an amount if at least `reserve` is left after that. Return whether it was taken.

        If `amount` plus `reserve` exceeds the burst, a full bucket is enough.
        """
        level = self._fill(now)
        if level + self._rounding < min(amount + reserve, self._burst):
            return False
        self._level = level - amount
        return True

    def put_back(self, amount: float) -> None:
        """Undo a `take` that was not used."""
        self._level = min(self._level + amount, self._burst)

    def ready_at(self, amount: float, now: float) -> float:
        """Return when `take` will succeed: `now` at the earliest."""
        missing = min(amount, self._burst) - self._fill(now)
        return now + missing / self._per_s if missing > self._rounding else now

    def _fill(self, now: float) -> float:
        if self._filled_at is None:
            self._filled_at = now
        elif now > self._filled_at:
            self._level = min(self._level + (now - self._filled_at) * self._per_s, self._burst)
            self._filled_at = now
        return self._level


class BandwidthCap(TokenBucket):
    """Limits the bytes per second that a node sends."""

    def __init__(self, bytes_per_s: float) -> None:
        super().__init__(bytes_per_s, BANDWIDTH_BURST_S * bytes_per_s)


class NewAddressCap:
    """Limits how many new endpoints are contacted. An endpoint is new if it was not contacted in the last minute.

    In any 60 seconds, at most `per_minute` new endpoints are contacted, because the burst is subtracted from the rate.
    """

    def __init__(self, per_minute: int, *, addresses_max: int = ADDRESSES_MAX) -> None:
        burst = max(1.0, per_minute * NEW_ADDRESSES_BURST_S / 60)
        self._bucket = TokenBucket((per_minute - burst) / 60 or 1 / 60, burst)
        self._contacted: RecentDict[bytes, float] = RecentDict(addresses_max)
        """When each endpoint was last contacted, the latest last."""

    def __len__(self) -> int:
        return len(self._contacted)

    def allow(self, endpoint: bytes, now: float) -> bool:
        """Return whether the endpoint may be contacted now; if so, count it."""
        while self._contacted and next(iter(self._contacted.values())) <= now - MINUTE_S:
            self._contacted.popitem(last=False)
        if endpoint not in self._contacted and not self._bucket.take(1, now):
            return False
        self._contacted[endpoint] = now
        return True


class QueryLimit(StrEnum):
    """The limits that can delay a query of ours."""

    HOST = "host"
    BANDWIDTH = "bandwidth"
    NEW_ADDRESSES = "new addresses"


class NodeLimits:
    """The limits of all nodes of a process together: they share one internet connection."""

    def __init__(
        self,
        *,
        bytes_per_s: float = BYTES_PER_S,
        new_addresses_per_minute: int = NEW_ADDRESSES_PER_MINUTE,
        answers_per_s: float = ANSWERS_PER_S,
        answers_burst: int = ANSWERS_BURST,
        queries_per_s: float = QUERIES_PER_S,
        queries_burst: int = QUERIES_BURST,
        connections_per_minute: int | None = None,
    ) -> None:
        self.bytes_per_s, self.new_addresses_per_minute = bytes_per_s, new_addresses_per_minute
        self.waits: Counter[QueryLimit] = Counter()
        """Number of waits of queries and connections, by limit. A query that waits twice counts twice."""
        self._answers = RateLimit[bytes](answers_per_s, answers_burst, keys_max=HOSTS_MAX)
        self._queries = RateLimit[bytes](queries_per_s, queries_burst, keys_max=HOSTS_MAX, refuse_when_full=True)
        self._bandwidth = BandwidthCap(bytes_per_s)
        self._reserve_bytes = QUERIES_RESERVE * BANDWIDTH_BURST_S * bytes_per_s
        self._new_addresses = NewAddressCap(new_addresses_per_minute)
        connections = new_addresses_per_minute if connections_per_minute is None else connections_per_minute
        self._connections = TokenBucket(connections / 60, max(1.0, connections * NEW_ADDRESSES_BURST_S / 60))

    def admits(self, source: bytes, now: float) -> bool:
        """Whether a query from this endpoint may be answered; if so, count it."""
        return self._answers.allow(site_of(source), now)

    def may_send(self, size_bytes: int, now: float) -> bool:
        """Whether there is bandwidth for an answer; if so, count its bytes."""
        return self._bandwidth.take(size_bytes, now, reserve=self._reserve_bytes)

    def may_connect(self, endpoint: bytes, now: float) -> bool:
        """Whether a TCP connection may be opened. If so, count it, and count its endpoint if that is new.

        Without a rate limit of their own, connections would use up the new addresses that queries need.
        """
        allowed = self._connections.take(1, now)
        if allowed and not self._new_addresses.allow(TCP + endpoint, now):
            self._connections.put_back(1)
            allowed = False
        self.waits[QueryLimit.NEW_ADDRESSES] += not allowed
        return allowed

    def query_wait_s(self, endpoint: bytes, now: float) -> float:
        """Return how long a query must wait. If it is 0, count the query."""
        host = site_of(endpoint)
        host_at, bytes_at = self._queries.ready_at(host, now), self._bandwidth.ready_at(QUERY_BYTES, now)
        if max(host_at, bytes_at) > now:
            self.waits[QueryLimit.HOST if host_at >= bytes_at else QueryLimit.BANDWIDTH] += 1
            return max(host_at, bytes_at) - now
        if not self._new_addresses.allow(endpoint, now):
            self.waits[QueryLimit.NEW_ADDRESSES] += 1
            return REFUSED_WAIT_S
        if not self._queries.allow(host, now):
            self.waits[QueryLimit.HOST] += 1
            return REFUSED_WAIT_S
        self._bandwidth.take(QUERY_BYTES, now)
        return 0.0
