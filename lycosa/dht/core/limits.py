"""Limits on what a node sends and answers: per host, in bytes, and in addresses it had no business with before.

libtorrent answers a host 50 messages in 10 seconds and then bans it for 5 minutes; home routers forget connections when
a node talks to too many addresses at once. All tables are bounded, and a check costs about a microsecond.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum

from lycosa.dht.core.endpoints import site_of

QUERIES_PER_S = 1.0
QUERIES_BURST = 4
"""Queries to one host, well under the 50 in 10 seconds that libtorrent tolerates. bitmagnet's values."""
ANSWERS_PER_S = 5.0
ANSWERS_BURST = 50
"""Queries of one host that are answered: libtorrent's 50 in 10 seconds."""
HOSTS_MAX = 131_072
"""Hosts in a table of rates. At 64 bytes a query, a table fills in the 4 seconds it must remember at 2 MB/s."""
ADDRESSES_MAX = 131_072
"""Endpoints that count as known. A minute at 2,000 queries/s."""
ROUNDING_S = 1e-6
"""More than the error of a float of seconds."""
BYTES_PER_S = 100_000.0
"""A megabit a second: a node on a home line answers a few dozen queries a second (libtorrent: 8,000 bytes)."""
NEW_ADDRESSES_PER_MINUTE = 1_000
"""Home routers remember 4,000 to 16,000 connections for some minutes."""
QUERY_BYTES = 120
"""A query is about this long."""
REFUSED_WAIT_S = 1.0
"""When a query that met a full table or too many new addresses is tried again."""
BANDWIDTH_BURST_S = 2.0
"""Seconds of full rate that an idle node may send at once."""
QUERIES_RESERVE = 0.25
"""The part of the burst that answers leave to queries: a flood of queries must not silence our own."""
TCP = b"tcp"
"""Before the endpoint of a connection: a router on the way keeps an entry for each protocol."""
NEW_ADDRESSES_BURST_S = 10.0
"""Seconds of the rate of new addresses that may come at once."""


class RateLimit:
    """A rate and a burst for each host: an IPv4 address or an IPv6 /64.

    A host's entry is the time at which its burst would be whole again (GCRA), so it can be forgotten after that. There
    are two generations of entries, and the older one is dropped as a whole when all in it have expired. A full table
    either refuses unknown hosts (`refuse_when_full`: the limit holds in all cases) or forgets the older generation
    early (a flood of forged addresses locks nobody out).
    """

    def __init__(self, per_s: float, burst: int, *, hosts_max: int = HOSTS_MAX, refuse_when_full: bool = False) -> None:
        self._interval_s = 1 / per_s
        self._tolerance_s = (burst - 1) / per_s + ROUNDING_S
        self._generation_s = burst / per_s
        self._hosts_max = hosts_max // 2
        self._refuse_when_full = refuse_when_full
        self._recent: dict[bytes, float] = {}
        self._older: dict[bytes, float] = {}
        self._started = float("-inf")

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def allow(self, endpoint: bytes, now: float) -> bool:
        """Return whether one more is within the limit of the host; if so, count it."""
        if now - self._started >= self._generation_s:
            self._next_generation(now)
        host = site_of(endpoint)
        whole_at = self._recent.get(host) or self._older.get(host, 0.0)
        if whole_at - now > self._tolerance_s:
            return False
        if len(self._recent) >= self._hosts_max and host not in self._recent:
            if self._refuse_when_full:
                return False
            self._next_generation(now)
        self._recent[host] = (max(now, whole_at)) + self._interval_s
        return True

    def ready_at(self, endpoint: bytes, now: float) -> float:
        """Return when the next one will be within the limit: `now` at the earliest. Nothing is counted."""
        host = site_of(endpoint)
        ready_at = (self._recent.get(host) or self._older.get(host, 0.0)) - self._tolerance_s
        return now if ready_at <= now else ready_at + ROUNDING_S

    def _next_generation(self, now: float) -> None:
        self._older, self._recent = self._recent, {}
        self._started = now


class TokenBucket:
    """A rate of bytes, or of anything, with a burst. `take` refuses what is not there."""

    def __init__(self, per_s: float, burst: float) -> None:
        self._per_s = per_s
        self._burst = burst
        self._level = burst
        self._rounding = ROUNDING_S * per_s
        self._filled_at: float | None = None

    def take(self, amount: float, now: float, *, reserve: float = 0.0) -> bool:
        """Take an amount if it is there and leaves the reserve, or if the bucket is full and smaller than both."""
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
    """The bytes a second that a node sends, answers and queries together."""

    def __init__(self, bytes_per_s: float) -> None:
        super().__init__(bytes_per_s, BANDWIDTH_BURST_S * bytes_per_s)


class NewAddressCap:
    """How many endpoints a minute may be contacted that were not contacted in the last minute.

    Each of them is an entry in the tables of routers and firewalls on the way. In no 60 seconds there are more new ones
    than `per_minute`: what may come at once is taken off the rate.
    """

    def __init__(self, per_minute: int, *, addresses_max: int = ADDRESSES_MAX) -> None:
        burst = max(1.0, per_minute * NEW_ADDRESSES_BURST_S / 60)
        self._bucket = TokenBucket((per_minute - burst) / 60 or 1 / 60, burst)
        self._addresses_max = addresses_max // 2
        self._recent: set[bytes] = set()
        self._older: set[bytes] = set()
        self._started = float("-inf")

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def allow(self, endpoint: bytes, now: float) -> bool:
        """Return whether this endpoint may be contacted; if so, it is known for the next one to two minutes."""
        if endpoint in self._recent and now - self._started < 60:
            return True
        if now - self._started >= 60 or len(self._recent) >= self._addresses_max:
            self._older = self._recent if now - self._started < 120 else set()
            self._recent = set()
            self._started = now
        if endpoint not in self._older and not self._bucket.take(1, now):
            return False
        self._recent.add(endpoint)
        return True


class QueryLimit(StrEnum):
    """What a query of ours waits for."""

    HOST = "host"
    """Each host is asked a limited number of times a second."""
    BANDWIDTH = "bandwidth"
    NEW_ADDRESSES = "new addresses"


class NodeLimits:
    """The limits of all nodes of a process, as these have one line and one router."""

    def __init__(
        self,
        *,
        bytes_per_s: float = BYTES_PER_S,
        new_addresses_per_minute: int = NEW_ADDRESSES_PER_MINUTE,
        answers_per_s: float = ANSWERS_PER_S,
        answers_burst: int = ANSWERS_BURST,
        queries_per_s: float = QUERIES_PER_S,
        queries_burst: int = QUERIES_BURST,
    ) -> None:
        self.bytes_per_s, self.new_addresses_per_minute = bytes_per_s, new_addresses_per_minute
        self.waits: Counter[QueryLimit] = Counter()
        """How often a query or connection had to wait, by the reason. One that waits again counts again."""
        self._answers = RateLimit(answers_per_s, answers_burst)
        self._queries = RateLimit(queries_per_s, queries_burst, refuse_when_full=True)
        self._bandwidth = BandwidthCap(bytes_per_s)
        self._reserve_bytes = QUERIES_RESERVE * BANDWIDTH_BURST_S * bytes_per_s
        self._new_addresses = NewAddressCap(new_addresses_per_minute)

    def admits(self, source: bytes, now: float) -> bool:
        """Return whether a query from this endpoint may be answered; if so, count it."""
        return self._answers.allow(source, now)

    def may_send(self, size_bytes: int, now: float) -> bool:
        """Return whether there is bandwidth for an answer; if so, count it."""
        return self._bandwidth.take(size_bytes, now, reserve=self._reserve_bytes)

    def may_connect(self, endpoint: bytes, now: float) -> bool:
        """Return whether a TCP connection may be opened; if so, count its address, beside those of UDP."""
        allowed = self._new_addresses.allow(TCP + endpoint, now)
        self.waits[QueryLimit.NEW_ADDRESSES] += not allowed
        return allowed

    def query_wait_s(self, endpoint: bytes, now: float) -> float:
        """Return how long a query to this endpoint must wait; if it need not, count it."""
        host_at, bytes_at = self._queries.ready_at(endpoint, now), self._bandwidth.ready_at(QUERY_BYTES, now)
        if max(host_at, bytes_at) > now:
            self.waits[QueryLimit.HOST if host_at >= bytes_at else QueryLimit.BANDWIDTH] += 1
            return max(host_at, bytes_at) - now
        if not self._new_addresses.allow(endpoint, now):
            self.waits[QueryLimit.NEW_ADDRESSES] += 1
            return REFUSED_WAIT_S
        if not self._queries.allow(endpoint, now):
            self.waits[QueryLimit.HOST] += 1
            return REFUSED_WAIT_S
        self._bandwidth.take(QUERY_BYTES, now)
        return 0.0
