"""Schedules a node's own queries: to join the network, verify nodes that queried us, ping questionable contacts, and
refresh buckets. An idle node sends one every few seconds."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.routing.table import RoutingTable

REFRESH_S = 900.0
"""A bucket that has not changed for 15 minutes is refreshed (BEP 5)."""
REFRESH_SPACING_S = 10.0
PING_SPACING_S = 5.0
"""The pings of a full table (160 contacts) take 13 minutes."""
OFFLINE_PING_SPACING_S = 60.0
VERIFY_SPACING_S = 0.5
VERIFICATIONS_MAX = 64
"""Maximum number of contacts that wait for verification. Further ones are dropped until they query us again."""
VERIFY_AGAIN_S = 900.0
VERIFIED_MAX = 2048
"""Maximum number of remembered pings. A contact is not pinged again within VERIFY_AGAIN_S, because many
unreachable nodes query us every minute."""
JOIN_AGAIN_MIN_S = 15.0
JOIN_AGAIN_MAX_S = 900.0
"""A node with fewer than K good contacts joins again after 15 s; the delay doubles each time, up to 15 minutes."""


class PingChore(NamedTuple):
    """Ping this contact."""

    contact: Contact


class SearchChore(NamedTuple):
    """Search for this target. `join`: also start with the bootstrap nodes."""

    target: bytes
    join: bool


Chore: TypeAlias = PingChore | SearchChore


class Maintenance:
    """The schedule of one node."""

    def __init__(self, random_bytes: Callable[[int], bytes]) -> None:
        self._random_bytes = random_bytes
        self._unverified: dict[bytes, Contact] = {}
        self._verified: RecentDict[bytes, float] = RecentDict(VERIFIED_MAX)
        self._searched: dict[int, float] = {}
        self._verify_at = self._ping_at = self._refresh_at = -math.inf
        self._join_at = math.inf
        self._join_again_s = JOIN_AGAIN_MIN_S
        self._joining = False
        self.next_timer = math.inf
        """When `chores` must be called next."""

    def start(self, now: float) -> None:
        self._join_at = now
        self._refresh_at = now + REFRESH_S
        self.next_timer = now

    def consider(self, contact: Contact, table: RoutingTable, now: float) -> None:
        """Schedule a ping of a contact that has not answered us yet."""
        if len(self._unverified) >= VERIFICATIONS_MAX or contact.endpoint in self._unverified:
            return
        if self._verified.get(contact.endpoint, -math.inf) + VERIFY_AGAIN_S > now or not table.would_take(contact, now):
            return
        self._unverified[contact.endpoint] = contact
        self.next_timer = min(self.next_timer, max(now, self._verify_at))

    def joined(self, table: RoutingTable, now: float) -> None:
        self._joining = False
        if table.is_populated(now):
            self._join_again_s = JOIN_AGAIN_MIN_S
            return
        self._join_at = now + self._join_again_s
        self._join_again_s = min(2 * self._join_again_s, JOIN_AGAIN_MAX_S)
        self.next_timer = min(self.next_timer, self._join_at)

    def moved(self, now: float) -> None:
        self._searched.clear()
        self._join_at = self.next_timer = now

    def first_contact(self, now: float) -> None:
        """Search for our own id (BEP 5)."""
        self._join_at = self.next_timer = now

    def chores(self, table: RoutingTable, now: float, *, reachable: bool, online: bool) -> list[Chore]:
        """Return what is due now. `reachable`: other nodes can reach us. `online`: a datagram arrived recently."""
        found: list[Chore] = []
        if now >= self._refresh_at:
            found += self._refresh(table, now, reachable=reachable)
        if now >= self._join_at:
            self._join_at = math.inf
            self._joining = True
            found.append(SearchChore(table.own_id, join=True))
        if now >= self._verify_at and self._unverified:
            found += self._verify(table, now)
        if now >= self._ping_at:
            questionable = table.questionable(now)
            if questionable is not None:
                self._ping_at = now + (PING_SPACING_S if online else OFFLINE_PING_SPACING_S)
                found.append(PingChore(questionable))
        self.next_timer = self._next(table, now)
        return found

    def _verify(self, table: RoutingTable, now: float) -> list[Chore]:
        endpoint = next(iter(self._unverified))
        contact = self._unverified.pop(endpoint)
        if not table.would_take(contact, now):
            return []
        self._verified[endpoint] = now
        self._verify_at = now + VERIFY_SPACING_S
        return [PingChore(contact)]

    def _refresh(self, table: RoutingTable, now: float, *, reachable: bool) -> list[Chore]:
        """Return a search in one bucket that has not changed for REFRESH_S.

        If no node can reach us, the last search in the bucket counts instead of its last change.
        """
        stale = [
            (changed_at if reachable else self._searched.get(index, changed_at), index)
            for index, changed_at in enumerate(table.changes())
        ]
        since, index = min(stale)
        if since + REFRESH_S > now:
            self._refresh_at = max(since + REFRESH_S, now + REFRESH_SPACING_S)
            return []
        if not table.is_populated(now) and not self._joining and self._join_at == math.inf:
            self._join_at = now
        self._refresh_at = now + REFRESH_SPACING_S
        self._searched[index] = now
        table.refreshed(index, now)
        return [SearchChore(table.target_in(index, self._random_bytes(ID_BYTES)), join=False)]

    def _next(self, table: RoutingTable, now: float) -> float:
        verify_at = max(self._verify_at, now) if self._unverified else math.inf
        ping_at = max(self._ping_at, table.next_questionable_at(), now)
        return min(self._join_at, verify_at, ping_at, self._refresh_at)
