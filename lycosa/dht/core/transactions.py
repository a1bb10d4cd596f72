"""Sends our queries when the limits allow it, and matches answers by transaction id and source.

KRPC does not repeat queries (BEP 5). After a first deadline, which adapts to measured round trips, a query is
*stalled*: a lookup continues without its answer, which still counts if it arrives. After a second deadline, the query
has failed.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import NamedTuple, Protocol

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.krpc import Reply

TRANSACTION_ID_BYTES = 4
"""Random, so an attacker who does not see our packets cannot guess the id. BEP 5's example of 2 bytes can be guessed
within a minute."""
OUTSTANDING_MAX = 2048
"""Enough for 200 queries per second with a timeout of 10 s."""
FAILED_S = 10.0
"""BEP 33 suggests 10 s, libtorrent waits 15 s."""
WAITING_MAX = 1024
"""Maximum number of queries that wait because of rate limits."""
WAITING_MAX_S = 20.0
"""A query that would have to wait longer is refused."""
REFUSED = "refused by the limits of this node"
"""Why a query was refused. It says nothing about the queried node."""
SILENCES_MAX = 3
SILENT_S = 900.0
"""Seconds for which lookups ignore an endpoint that did not answer SILENCES_MAX queries in a row."""
SILENT_ENDPOINTS_MAX = 4096
STALLED_MIN_S = 0.5
STALLED_MAX_S = 5.0
STALLED_INITIAL_S = 2.0
"""The first deadline before the first measurement."""


class OutgoingQuery:
    """A query of ours. `arguments` are encoded. `expected_id` is None if only the endpoint is known. `operation` is
    notified of the result."""

    __slots__ = ("arguments", "endpoint", "expected_id", "key", "method", "operation", "sent_at", "wanted_at")

    def __init__(
        self,
        method: bytes,
        arguments: bytes,
        endpoint: bytes,
        expected_id: bytes | None,
        operation: QueryListener | None = None,
    ) -> None:
        self.method = method
        self.arguments = arguments
        self.endpoint = endpoint
        self.expected_id = expected_id
        self.operation = operation
        self.key = b""
        self.wanted_at = self.sent_at = math.nan

    def contact(self) -> Contact | None:
        return None if self.expected_id is None else Contact(self.expected_id, self.endpoint)


class QueryListener(Protocol):
    """Is notified when its queries are answered, stalled or failed."""

    is_over: bool

    def answered(self, query: OutgoingQuery, reply: Reply, now: float) -> None: ...

    def stalled(self, query: OutgoingQuery, now: float) -> None: ...

    def failed(self, query: OutgoingQuery, reason: str, now: float) -> None: ...


class SilentEndpoints:
    """Endpoints that did not answer several queries in a row.

    Other nodes return them for a long time, so up to four fifths of our queries would go to them (mldht).
    """

    def __init__(self) -> None:
        self._silences: RecentDict[bytes, tuple[int, float]] = RecentDict(SILENT_ENDPOINTS_MAX)

    def failed(self, endpoint: bytes, now: float) -> None:
        silences, _ = self._silences.get(endpoint, (0, now))
        self._silences[endpoint] = silences + 1, now + SILENT_S

    def answered(self, endpoint: bytes) -> None:
        self._silences.pop(endpoint, None)

    def contains(self, endpoint: bytes, now: float) -> bool:
        silences, until = self._silences.get(endpoint, (0, now))
        return silences >= SILENCES_MAX and now < until


class Overdue(NamedTuple):
    """A query that passed a deadline."""

    query: OutgoingQuery
    failed: bool


class Transactions:
    """Matches answers with queries, and finds overdue queries."""

    def __init__(self, random_bytes: Callable[[int], bytes], outstanding_max: int = OUTSTANDING_MAX) -> None:
        self._random_bytes = random_bytes
        self._outstanding_max = outstanding_max
        self._queries: dict[bytes, OutgoingQuery] = {}
        self._stalling: list[tuple[float, bytes]] = []
        self._failing: deque[OutgoingQuery] = deque()
        self._mean_s = math.nan
        self._deviation_s = 0.0

    def __len__(self) -> int:
        return len(self._queries)

    def open(self, query: OutgoingQuery, now: float) -> bytes | None:
        """Return a transaction id; None if too many queries are outstanding."""
        if len(self._queries) >= self._outstanding_max:
            return None
        transaction_id = self._random_bytes(TRANSACTION_ID_BYTES)
        key = transaction_id + query.endpoint
        if key in self._queries:
            return None
        query.key, query.sent_at = key, now
        self._queries[key] = query
        heapq.heappush(self._stalling, (now + self.stalled_s, key))
        self._failing.append(query)
        return transaction_id

    def close(self, transaction_id: bytes, source: bytes, now: float) -> OutgoingQuery | None:
        query = self._queries.pop(transaction_id + source, None)
        if query is not None:
            self._measure(now - query.sent_at)
        return query

    @property
    def stalled_s(self) -> float:
        """The first deadline: mean round trip plus four mean deviations, as in TCP (RFC 6298)."""
        if math.isnan(self._mean_s):
            return STALLED_INITIAL_S
        return min(max(self._mean_s + 4 * self._deviation_s, STALLED_MIN_S), STALLED_MAX_S)

    @property
    def round_trip_s(self) -> float | None:
        return None if math.isnan(self._mean_s) else self._mean_s

    def overdue(self, now: float) -> list[Overdue]:
        """Return the queries that have passed a deadline since the last call."""
        passed = []
        while self._stalling and self._stalling[0][0] <= now:
            query = self._queries.get(heapq.heappop(self._stalling)[1])
            if query is not None:
                passed.append(Overdue(query, failed=False))
        while self._failing and self._failing[0].sent_at + FAILED_S <= now:
            query = self._failing.popleft()
            if self._queries.get(query.key) is query:
                del self._queries[query.key]
                passed.append(Overdue(query, failed=True))
        return passed

    def next_timer(self) -> float:
        while self._stalling and self._stalling[0][1] not in self._queries:
            heapq.heappop(self._stalling)
        while self._failing and self._queries.get(self._failing[0].key) is not self._failing[0]:
            self._failing.popleft()
        deadlines = [deadline for deadline, _ in self._stalling[:1]]
        deadlines += [self._failing[0].sent_at + FAILED_S] if self._failing else []
        return min(deadlines, default=math.inf)

    def validate(self) -> None:
        failing = {id(query) for query in self._failing}
        assert all(id(query) in failing for query in self._queries.values()), "a query without a deadline"
        assert len(self._queries) <= self._outstanding_max, "too many outstanding queries"

    def _measure(self, round_trip_s: float) -> None:
        if math.isnan(self._mean_s):
            self._mean_s, self._deviation_s = round_trip_s, round_trip_s / 2
            return
        self._deviation_s += (abs(round_trip_s - self._mean_s) - self._deviation_s) / 4
        self._mean_s += (round_trip_s - self._mean_s) / 8


class OutgoingQueries:
    """Sends queries when the limits allow it. Refuses a query if it would wait too long, or too many queries wait."""

    def __init__(
        self,
        transactions: Transactions,
        wait_s: Callable[[bytes, float], float],
        transmit: Callable[[bytes, OutgoingQuery, float], None],
    ) -> None:
        self._transactions = transactions
        self._wait_s = wait_s
        self._transmit = transmit
        self._waiting: list[tuple[float, int, OutgoingQuery]] = []
        self._wanted = 0
        self._refused: list[OutgoingQuery] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def send(self, query: OutgoingQuery, now: float) -> None:
        query.wanted_at = now
        if len(self._waiting) >= WAITING_MAX:
            self._refused.append(query)
            return
        self._wanted += 1
        heapq.heappush(self._waiting, (now, self._wanted, query))
        self.flush(now)

    def flush(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, number, query = heapq.heappop(self._waiting)
            if query.operation is not None and query.operation.is_over:
                continue
            wait_s = self._wait_s(query.endpoint, now)
            if wait_s > 0:
                if now + wait_s > query.wanted_at + WAITING_MAX_S:
                    self._refused.append(query)
                else:
                    heapq.heappush(self._waiting, (now + wait_s, number, query))
                continue
            transaction_id = self._transactions.open(query, now)
            if transaction_id is None:
                self._refused.append(query)
            else:
                self._transmit(transaction_id, query, now)

    def take_refused(self) -> list[OutgoingQuery]:
        refused, self._refused = self._refused, []
        return refused

    def next_timer(self) -> float:
        """Return when `flush` or `take_refused` must be called next."""
        if self._refused:
            return -math.inf
        return self._waiting[0][0] if self._waiting else math.inf
