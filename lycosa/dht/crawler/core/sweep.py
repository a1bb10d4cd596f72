"""Decides which node is asked for a sample next, on the way through the key space (BEP 51).

A sweep goes from id 0 to the largest id and asks each node once, the one with the smallest id first. Every answer names
contacts a little ahead. Where no node is known nearby, lookups search at the starts of the next subtrees, larger and
larger ones.
The position is the part of the key space behind which all known nodes were asked, or wait for their interval. A node
that has more infohashes than it sent is asked again when its interval is over, as long as that brings something new.
Such nodes get every other question, and all while the sweep rests.

    step = sweep.next_step(now)         # Ask, Search, or Rest
    sweep.answered(...)  sweep.failed(...)  sweep.postponed(...)  sweep.searched(...)

Whatever a node says costs little: an interval has bounds, a node that has nothing new is asked once a sweep, one host
is asked once a second, and an answer names a few contacts. Pure: `now` is monotonic seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush, nsmallest
from typing import NamedTuple, TypeAlias

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact, site_of
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.limits import QUERIES_BURST, QUERIES_PER_S
from lycosa.dht.core.routing.table import K

KEY_SPACE = 1 << 160
POSITION_BITS = 62
"""Of a position that is stored; finer than the distance between two nodes of the public network, about 2^137."""
CANDIDATES_MAX = 20_000
"""Known nodes ahead, up to twice as many for a moment. The neighbours of each are named again on the way."""
NODES_MAX = 100_000
"""Nodes whose last answer is remembered, about 30 MB."""
AGAIN_MAX = 10_000
"""Nodes that wait for the end of their interval."""
AGAIN_OF_SITE_MAX = 32
"""Those of one host: a subscriber with so many nodes is a provider, or has one node with many names."""
SILENT_MAX = 1000
SITES_MAX = 10_000
"""Hosts whose last question is remembered; the pace of a host lasts for seconds."""
CLOSER_MAX = 2 * K
"""Contacts that are taken of an answer, the closest to the target. A node that names dead ones costs so much."""
GAP_NODES = 8
"""A gap of this many mean distances is searched by lookups: among random ids one in 3,000 gaps is as wide."""
AHEAD_NODES = (4, -2)
"""How many mean distances ahead of a node it is asked for contacts, in turn. The first nodes of a subtree are known
best by those after them: if all questions looked ahead, one node in 60 would be missed."""
BEHIND_NODES = 64
"""Nodes that are named late are still asked if they are this many mean distances behind."""
SPACINGS_KEPT = 31
"""Answers whose median tells the mean distance between nodes: a few false ones change little."""
SAMPLES_KEPT = 2000
"""Nodes whose last answers tell the usual interval, and which share of the infohashes is known."""
SAMPLE_AGE_MAX_S = 1800.0
"""Age of a sample that tells which share is known. In an hour the share of a node that waits for six has changed."""
AGAIN_MIN_S = 5.0
"""A node whose interval is shorter, even 0, is not asked more often."""
RETRY_S = 60.0
"""When a node that used to answer is asked again after a silence."""
BARREN_MAX = 4
"""After so many answers in a row with nothing new, or silences, a node is asked once a sweep. Where 95 % are known, one
sample of 20 in three has nothing new; four in a row are one in 60."""
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


class SampledNode(NamedTuple):
    """A node that was asked: in which sweep, until when it is left alone, how often in a row it had nothing new."""

    sweep: int
    again_at: float
    barren: int


class LastSample(NamedTuple):
    """The last sample of a node: `size` infohashes, of which `new` ones were new."""

    at: float
    interval_s: float
    size: int
    new: int


class Sweep:
    """See the module. `position` is a stored position."""

    def __init__(self, now: float, position: int = 0) -> None:
        self.sweeps = 0
        """Complete sweeps."""
        self.asked = 0
        """Nodes that were asked on the way of this sweep."""
        self._position = min(max(position, 0), (1 << POSITION_BITS) - 1) << (160 - POSITION_BITS)
        self._started_at = now
        self._ahead: list[tuple[int, Contact]] = []
        self._ahead_endpoints: set[bytes] = set()
        self._questions = 0
        self._again = WaitingNodes()
        self._again_turn = False
        self._nodes: RecentDict[bytes, SampledNode] = RecentDict(NODES_MAX)
        self._site_ready_at: RecentDict[bytes, float] = RecentDict(SITES_MAX)
        self._in_flight: set[bytes] = set()
        self._passing: dict[bytes, int] = {}
        """The keys of the nodes in flight that are asked on the way. The position does not pass them."""
        self._spacings: deque[int] = deque(maxlen=SPACINGS_KEPT)
        self._spacing = KEY_SPACE // K
        """The mean distance between two nodes, as far as it is known."""
        self._silent: deque[Contact] = deque(maxlen=SILENT_MAX)
        """Nodes that were silent in this sweep; if the next one has time, they get a second chance."""
        self._samples: RecentDict[bytes, LastSample] = RecentDict(SAMPLES_KEPT)
        self._is_searching = self._knows_spacing = False
        self._searched_from = -1
        self._search_width = 0
        self._rests_until = now

    @property
    def position(self) -> int:
        """What to store: everything behind it was asked, and has answered or not."""
        return min([self._position, *self._passing.values()]) >> (160 - POSITION_BITS)

    @property
    def coverage(self) -> float:
        """The share of the key space that this sweep has gone through."""
        return self._position / KEY_SPACE

    def known_share(self, now: float) -> float:
        """Estimate which share of the network's infohashes is known: the share in the last sample of each node.

        In the first sweep only what it has gone through is known. The estimate is low while many are new.
        """
        recent = [each for each in self._samples.values() if now - each.at < SAMPLE_AGE_MAX_S]
        size = sum(each.size for each in recent)
        share = 1 - sum(each.new for each in recent) / size if size else 0.0
        return share if self.sweeps else share * self.coverage

    def next_step(self, now: float) -> Step:
        """Return what to do; call it again at `until` of a rest, or after an answer."""
        step = self._ask_again(now) if self._again_turn else None
        self._again_turn = step is None
        if step is not None:
            return step
        on_the_way = self._next_on_the_way(now)
        if isinstance(on_the_way, Rest):
            return self._ask_again(now) or Rest(min(on_the_way.until, self._again.next_at()))
        return on_the_way

    def answered(
        self, ask: Ask, closer: Iterable[Contact], now: float, *, interval_s: float, num: int, sampled: int, new: int
    ) -> None:
        """Take an answer: the node has `num` infohashes and sent `sampled` of them, of which `new` ones are new."""
        contact = ask.contact
        interval_s = min(max(interval_s, AGAIN_MIN_S), SWEEP_MAX_S)
        self._end(contact)
        self._samples[contact.endpoint] = LastSample(now, interval_s, sampled, new)
        barren = 0 if new else self._barren(contact) + 1
        self._nodes[contact.endpoint] = SampledNode(self.sweeps, now + interval_s, barren)
        if num > sampled and barren < BARREN_MAX:
            self._again.add(contact, now + interval_s)
        self._add_closer(ask, closer, now)

    def failed(self, ask: Ask, closer: Sequence[Contact], now: float) -> None:
        """The node did not answer, or does not know the query."""
        contact = ask.contact
        self._end(contact)
        used_to_answer = contact.endpoint in self._nodes
        barren = self._barren(contact) + 1 if used_to_answer else BARREN_MAX
        self._nodes[contact.endpoint] = SampledNode(self.sweeps, now, barren)
        if barren < BARREN_MAX:
            self._again.add(contact, now + RETRY_S)
        elif not (used_to_answer or closer):
            self._silent.append(contact)
        self._add_closer(ask, closer, now)

    def postponed(self, ask: Ask, now: float) -> None:
        """The node was not asked: ours is busy."""
        self._end(ask.contact)
        self._again.add(ask.contact, now + AGAIN_MIN_S)

    def searched(self, target: bytes, found: Iterable[Contact], now: float) -> None:
        """Take the result of a search."""
        self._is_searching = False
        self._knows_spacing = True  # or there are too few nodes to tell
        named = list(found)
        self._note_spacing(int.from_bytes(target), named)
        self.add(named, now)

    def add(self, contacts: Iterable[Contact], now: float) -> None:
        """Take nodes that were named. Those far behind are left for the next sweep."""
        floor = self._position - BEHIND_NODES * self._spacing
        for contact in contacts:
            endpoint, key = contact.endpoint, int.from_bytes(contact.id)
            if key < floor or endpoint in self._ahead_endpoints or endpoint in self._in_flight:
                continue
            known = self._nodes.get(endpoint)
            if known is not None and known.sweep == self.sweeps and key <= self._position:
                continue
            if known is None and now < self._rests_until:
                self._again.add(contact, now)  # the sweep has missed it
                continue
            heappush(self._ahead, (key, contact))
            self._ahead_endpoints.add(endpoint)
        if len(self._ahead) > 2 * CANDIDATES_MAX:
            self._ahead = nsmallest(CANDIDATES_MAX, self._ahead)
            self._ahead_endpoints = {contact.endpoint for _, contact in self._ahead}

    def _next_on_the_way(self, now: float) -> Step:
        if now < self._rests_until:
            return Rest(self._rests_until)
        while True:
            head = self._ahead[0][0] if self._ahead else KEY_SPACE
            gap = head - self._position
            if gap > GAP_NODES * self._spacing or not (self._ahead and self._knows_spacing):
                if self._is_searching or self._passing:  # an answer may close the gap
                    return Rest(now + 1.0)
                target = self._search_target()
                if target < head:
                    self._is_searching = True
                    return Search(target.to_bytes(ID_BYTES))
            if not self._ahead:
                self._finish(now)
                if self._rests_until > now:
                    return Rest(self._rests_until)
                continue
            key, contact = heappop(self._ahead)
            self._ahead_endpoints.discard(contact.endpoint)
            self._position = max(self._position, key)
            if self._may_pass(contact, now):
                self.asked += 1
                self._passing[contact.endpoint] = key
                return self._ask(contact, now)

    def _may_pass(self, contact: Contact, now: float) -> bool:
        """Whether a node is asked on the way. If it only has to wait, it is asked when it may be."""
        if contact.endpoint in self._in_flight:
            return False
        known = self._nodes.get(contact.endpoint)
        if known is not None and known.sweep == self.sweeps:
            return False
        free_at = self._free_at(contact)
        if free_at > now:
            self._again.add(contact, free_at)
        return free_at <= now

    def _ask_again(self, now: float) -> Ask | None:
        """Return the next node whose interval is over."""
        while (contact := self._again.pop(now)) is not None:
            free_at = self._free_at(contact)
            if free_at > now:
                self._again.add(contact, free_at)
            elif contact.endpoint not in self._in_flight:
                return self._ask(contact, now)
        return None

    def _ask(self, contact: Contact, now: float) -> Ask:
        key = int.from_bytes(contact.id)
        site = site_of(contact.endpoint)
        self._in_flight.add(contact.endpoint)
        self._site_ready_at[site] = max(self._site_ready_at.get(site, 0.0), now) + 1 / QUERIES_PER_S
        self._questions += 1
        target = key + AHEAD_NODES[self._questions % len(AHEAD_NODES)] * self._spacing
        return Ask(contact, min(max(target, 0), KEY_SPACE - 1).to_bytes(ID_BYTES))

    def _free_at(self, contact: Contact) -> float:
        """Return when a node may be asked: its interval is over, and the limits of our node let the question out."""
        known = self._nodes.get(contact.endpoint)
        site_free_at = self._site_ready_at.get(site_of(contact.endpoint), 0.0) - (QUERIES_BURST - 1) / QUERIES_PER_S
        return site_free_at if known is None else max(known.again_at, site_free_at)

    def _end(self, contact: Contact) -> None:
        self._in_flight.discard(contact.endpoint)
        self._passing.pop(contact.endpoint, None)

    def _barren(self, contact: Contact) -> int:
        known = self._nodes.get(contact.endpoint)
        return known.barren if known is not None else 0

    def _add_closer(self, ask: Ask, closer: Iterable[Contact], now: float) -> None:
        target = int.from_bytes(ask.target)
        named = nsmallest(CLOSER_MAX, closer, key=lambda each: int.from_bytes(each.id) ^ target)
        self._note_spacing(target, named)
        self.add(named, now)

    def _search_target(self) -> int:
        """Return the start of the next subtree; of a larger one if the position is still that of the last search."""
        if self._searched_from == self._position:
            self._search_width *= 8
        else:
            self._searched_from = self._position
            self._search_width = 1 << (self._spacing * GAP_NODES).bit_length()
            if not (self._position and self._spacings):
                return self._position
        return (self._position // self._search_width + 1) * self._search_width

    def _finish(self, now: float) -> None:
        """End the sweep; the next one begins when most nodes may be asked again."""
        intervals = sorted(each.interval_s for each in self._samples.values())
        interval_s = intervals[len(intervals) // 2] if intervals else SWEEP_MIN_S
        if self.asked > NODES_MAX // 2:
            interval_s = SWEEP_MAX_S  # the intervals of some are forgotten; this one is enough for all
        self._rests_until = max(now, self._started_at + min(max(interval_s, SWEEP_MIN_S), SWEEP_MAX_S))
        self._started_at = self._rests_until
        self._position = self.asked = 0
        self._searched_from = -1
        self.sweeps += 1
        if now < self._rests_until:
            for contact in self._silent:
                self._again.add(contact, now)
        self._silent.clear()

    def _note_spacing(self, target: int, found: list[Contact]) -> None:
        """Estimate the mean distance between nodes from those that are closest to a target."""
        distances = sorted(int.from_bytes(each.id) ^ target for each in found)[:K]
        if len(distances) == K:
            self._spacings.append(distances[-1] // K)
            self._spacing = max(1, sorted(self._spacings)[len(self._spacings) // 2])


class WaitingNodes:
    """Nodes with the times at which they may be asked again, each once. More than fit are left for the next sweep."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Contact]] = []
        self._endpoints: set[bytes] = set()
        self._of_site: Counter[bytes] = Counter()

    def add(self, contact: Contact, at: float) -> None:
        """Take a node, unless it waits already, or there are too many."""
        site = site_of(contact.endpoint)
        if contact.endpoint in self._endpoints or len(self._heap) >= AGAIN_MAX:
            return
        if self._of_site[site] < AGAIN_OF_SITE_MAX:
            heappush(self._heap, (at, contact))
            self._endpoints.add(contact.endpoint)
            self._of_site[site] += 1

    def pop(self, now: float) -> Contact | None:
        """Return the first node that may be asked."""
        if not self._heap or self._heap[0][0] > now:
            return None
        _, contact = heappop(self._heap)
        self._endpoints.discard(contact.endpoint)
        site = site_of(contact.endpoint)
        self._of_site[site] -= 1
        if not self._of_site[site]:
            del self._of_site[site]
        return contact

    def next_at(self) -> float:
        """Return when the first one may be asked, infinity if there is none."""
        return self._heap[0][0] if self._heap else float("inf")
