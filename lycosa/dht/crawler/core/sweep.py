"""Decides which node is asked for a sample next, on the way through the key space (BEP 51).

A sweep goes from id 0 to the largest id and asks each node once, the one with the smallest id first. Every answer names
contacts a little ahead. Where no node is known nearby, lookups search at the starts of the next subtrees, larger and
larger ones.
The position is the part of the key space behind which all known nodes were asked. A node that has more infohashes than
it sent is asked again when its interval is over, as long as that brings something new.

    step = sweep.next_step(now)         # Ask, Search, or Rest
    sweep.answered(...)  sweep.failed(...)  sweep.searched(...)

Pure: `now` is monotonic seconds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.routing.table import K

KEY_SPACE = 1 << 160
POSITION_BITS = 62
"""Of a position that is stored; finer than the distance between two nodes of the public network, about 2^137."""
CANDIDATES_MAX = 50_000
"""Known nodes ahead. More are not needed: the neighbours of each are named again on the way."""
ASKED_MAX = 200_000
"""Nodes whose last question is remembered."""
AGAIN_MAX = 10_000
"""Nodes that will be asked again within a sweep."""
GAP_NODES = 8
"""A gap of this many mean distances is searched by lookups: among random ids one in 3,000 gaps is as wide."""
AHEAD_NODES = 4
"""How many mean distances ahead of a node it is asked for contacts: the K closest to that point lie on both sides."""
BEHIND_NODES = 64
"""Nodes that are named late are still asked if they are this many mean distances behind."""
SPACINGS_KEPT = 31
"""Answers whose median tells the mean distance between nodes: a few false ones change little."""
INTERVALS_KEPT = 1001
SWEEP_MIN_S, SWEEP_MAX_S = 10.0, 21_600.0
"""Bounds of the time from one sweep to the next, which is the median interval of the nodes; BEP 51: 6 hours at most."""


class Ask(NamedTuple):
    """Ask this node for a sample, and for the nodes that it knows near a target, which is a little ahead."""

    contact: Contact
    target: bytes


class Search(NamedTuple):
    """Search nodes close to a target."""

    target: bytes


class Rest(NamedTuple):
    """Nothing to do before `until`, or before the next answer."""

    until: float


Step: TypeAlias = Ask | Search | Rest


class Sweep:
    """See the module. `position` is a stored position."""

    def __init__(self, now: float, position: int = 0) -> None:
        self.sweeps = 0
        """Complete sweeps."""
        self.asked = 0
        """Nodes that were asked in this sweep."""
        self._position = min(max(position, 0), (1 << POSITION_BITS) - 1) << (160 - POSITION_BITS)
        self._started_at = now
        self._ahead: list[tuple[int, Contact]] = []
        self._ahead_endpoints: set[bytes] = set()
        self._again: list[tuple[float, Contact]] = []
        self._asked_at: RecentDict[bytes, float] = RecentDict(ASKED_MAX)
        self._again_at: RecentDict[bytes, float] = RecentDict(ASKED_MAX)
        self._in_flight: dict[bytes, int] = {}
        self._spacings: deque[int] = deque(maxlen=SPACINGS_KEPT)
        self._intervals: deque[float] = deque(maxlen=INTERVALS_KEPT)
        self._again_endpoints: set[bytes] = set()
        self._is_searching = False
        self._searched_from = -1
        self._search_width = 0
        self._rests_until = now

    @property
    def position(self) -> int:
        """What to store: everything behind it was asked."""
        return min([self._position, *self._in_flight.values()]) >> (160 - POSITION_BITS)

    @property
    def coverage(self) -> float:
        """The share of the key space that this sweep has gone through."""
        return self._position / KEY_SPACE

    def next_step(self, now: float) -> Step:
        """Return what to do; call it again at `until` of a rest, or after an answer."""
        if self._again and self._again[0][0] <= now:
            contact = heappop(self._again)[1]
            self._again_endpoints.discard(contact.endpoint)
            return self._ask(contact, now)
        if now < self._rests_until:
            return Rest(self._next_at(self._rests_until))
        head = self._ahead[0][0] if self._ahead else KEY_SPACE
        if not self._ahead or head - self._position > GAP_NODES * self._spacing():
            if self._is_searching or self._in_flight:  # an answer may close the gap
                return Rest(self._next_at(now + 1.0))
            target = self._search_target()
            if target < head:
                self._is_searching = True
                return Search(target.to_bytes(ID_BYTES))
        if self._ahead:
            key, contact = heappop(self._ahead)
            self._ahead_endpoints.discard(contact.endpoint)
            self._position = max(self._position, key)
            return self._ask(contact, now)
        self._finish(now)
        return Rest(self._next_at(self._rests_until))

    def answered(self, ask: Ask, closer: Iterable[Contact], now: float, *, interval_s: int, has_more: bool) -> None:
        """Take an answer. `has_more`: it brought something new, and the node has more than it sent."""
        contact = ask.contact
        self._in_flight.pop(contact.endpoint, None)
        self._intervals.append(interval_s)
        self._again_at[contact.endpoint] = now + interval_s
        if has_more and len(self._again) < AGAIN_MAX:
            self._ask_again(contact, now + interval_s)
        self._add_closer(ask, closer, now)

    def failed(self, ask: Ask, closer: Iterable[Contact], now: float) -> None:
        """The node did not answer, or does not know the query."""
        self._in_flight.pop(ask.contact.endpoint, None)
        self._add_closer(ask, closer, now)

    def searched(self, target: bytes, found: Iterable[Contact], now: float) -> None:
        """Take the result of a search."""
        self._is_searching = False
        named = list(found)
        self._note_spacing(int.from_bytes(target), named)
        self.add(named, now)

    def add(self, contacts: Iterable[Contact], now: float) -> None:
        """Take nodes that were named. Those far behind are left for the next sweep."""
        floor = self._position - BEHIND_NODES * self._spacing()
        for contact in contacts:
            key = int.from_bytes(contact.id)
            if key < floor or contact.endpoint in self._ahead_endpoints or len(self._ahead) >= CANDIDATES_MAX:
                continue
            if contact.endpoint in self._in_flight or contact.endpoint in self._again_endpoints:
                continue
            if self._asked_at.get(contact.endpoint, -1.0) >= self._started_at:
                continue
            again_at = self._again_at.get(contact.endpoint, now)
            if again_at > now:
                if len(self._again) < AGAIN_MAX and again_at <= now + SWEEP_MIN_S:
                    self._ask_again(contact, again_at)
                continue
            heappush(self._ahead, (key, contact))
            self._ahead_endpoints.add(contact.endpoint)

    def _add_closer(self, ask: Ask, closer: Iterable[Contact], now: float) -> None:
        named = list(closer)
        self._note_spacing(int.from_bytes(ask.target), named)
        self.add(named, now)

    def _search_target(self) -> int:
        """Return the start of the next subtree; of a larger one if the position is still that of the last search."""
        if self._searched_from == self._position:
            self._search_width *= 8
        else:
            self._searched_from = self._position
            self._search_width = 1 << (self._spacing() * GAP_NODES).bit_length()
            if not self._position:
                return 0
        return (self._position // self._search_width + 1) * self._search_width

    def _ask_again(self, contact: Contact, at: float) -> None:
        heappush(self._again, (at, contact))
        self._again_endpoints.add(contact.endpoint)

    def _ask(self, contact: Contact, now: float) -> Ask:
        self.asked += 1
        self._asked_at[contact.endpoint] = now
        key = self._in_flight[contact.endpoint] = int.from_bytes(contact.id)
        target = min(key + AHEAD_NODES * self._spacing(), KEY_SPACE - 1)
        return Ask(contact, target.to_bytes(ID_BYTES))

    def _finish(self, now: float) -> None:
        """End the sweep; the next one begins when most nodes may be asked again."""
        interval_s = sorted(self._intervals)[len(self._intervals) // 2] if self._intervals else SWEEP_MIN_S
        self._rests_until = max(now, self._started_at + min(max(interval_s, SWEEP_MIN_S), SWEEP_MAX_S))
        self._started_at = self._rests_until
        self._position = self.asked = 0
        self._searched_from = -1
        self.sweeps += 1

    def _next_at(self, at: float) -> float:
        return min(at, self._again[0][0]) if self._again else at

    def _note_spacing(self, target: int, found: list[Contact]) -> None:
        """Estimate the mean distance between nodes from those that are closest to a target."""
        distances = sorted(int.from_bytes(each.id) ^ target for each in found)[:K]
        if len(distances) == K:
            self._spacings.append(distances[-1] // K)

    def _spacing(self) -> int:
        """Return the mean distance between two nodes, as far as it is known."""
        if not self._spacings:
            return KEY_SPACE // K
        return max(1, sorted(self._spacings)[len(self._spacings) // 2])
