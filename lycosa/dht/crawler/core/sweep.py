"""Decides which node to query for a sample next, on the way through the key space (BEP 51).

A sweep queries each node once, in the order of ids, in equal parts of the key space (lanes) that advance in parallel.
Each query names a target near the queried node, and the response has contacts near this target.

A node that has more infohashes than it sent is queried again after its interval, as long as it returns new infohashes.
Such nodes get every second query, and all queries while the sweep rests.

The stored position is the share that all lanes have completed. All known nodes in this part were queried, or wait for
the end of their interval.

    step = sweep.next_step(now)         # Ask, Search, or Rest
    sweep.answered(...)  sweep.failed(...)  sweep.postponed(...)  sweep.searched(...)

A lying node costs little: intervals are bounded, a node without new infohashes gets one query per sweep, a host one
query per second, and a response adds only a few contacts. `now` is monotonic seconds.
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
from lycosa.dht.crawler.core.lane import KEY_BITS, KEY_SPACE, SweepLane, lanes

POSITION_BITS = 62
LANES_BITS = 4
"""Low bits of a stored position that encode the number of lanes. The other bits encode the progress in steps of at most
2^102 keys; two nodes of the public network are about 2^137 apart."""
PROGRESS_BITS = POSITION_BITS - LANES_BITS
LANES_MAX = 8
"""One lane queries 30 nodes a second: it waits for responses, and a third never come."""
LANE_NODES_MIN = 250
"""A lane with fewer nodes is not worth the lookup at its start."""
NODES_MAX = 100_000
"""Nodes whose last response is remembered, about 30 MB."""
AGAIN_MAX = 10_000
"""Nodes that wait for the end of their interval."""
AGAIN_OF_SITE_MAX = 32
"""Waiting nodes per host. A host with more is a provider, or one node with many ids."""
SILENT_MAX = 1000
SITES_MAX = 10_000
"""Hosts whose last query is remembered. A query delays the next one to its host for a few seconds only."""
CLOSER_MAX = 2 * K
"""Contacts taken from a response, those closest to the target. This limits the cost of dead contacts."""
AHEAD_NODES = (5, -2)
"""How far the target is ahead of the queried node, in mean distances between nodes; negative is behind. Queries
alternate between these values. The first nodes of a subtree are best known to the nodes after them, but these return
them only for a target behind themselves. If all targets were ahead, one node in 60 would be missed."""
SPACINGS_KEPT = 31
"""Number of latest estimates of the mean distance between nodes. Their median is used, so a few false responses change
little."""
SAMPLES_KEPT = 2000
"""Last samples from which the usual interval and the share of known infohashes are estimated."""
SAMPLE_AGE_MAX_S = 1800.0
"""Older samples do not count in the estimate of the known share. Intervals last up to six hours."""
AGAIN_MIN_S = 5.0
"""Seconds between two queries to a node, even if the node allows a shorter interval."""
POLL_S = 0.5
"""How often to check whether a lane has waited long enough for a response."""
RETRY_S = 60.0
"""Delay before a node that answered earlier is queried again after a time-out."""
BARREN_MAX = 4
"""After this many time-outs or responses with nothing new in a row, a node gets one query per sweep. If 95 % of its
infohashes are known, the probability of a sample of 20 with nothing new is 1/3, of four in a row 1/60."""
SWEEP_MIN_S, SWEEP_MAX_S = 10.0, 21_600.0
"""Bounds of the time between the starts of two sweeps, which is the median of the nodes' intervals. BEP 51 allows
intervals of up to six hours."""


class Ask(NamedTuple):
    """Query this node for a sample, and for contacts near a target."""

    contact: Contact
    target: bytes


class Search(NamedTuple):
    """Look up the nodes closest to a target."""

    target: bytes


class Rest(NamedTuple):
    """Do nothing until `until` or the next response."""

    until: float


Step: TypeAlias = Ask | Search | Rest


class SampledNode(NamedTuple):
    """A queried node. `barren`: how many queries in a row have returned nothing new."""

    sweep: int
    again_at: float
    barren: int


class LastSample(NamedTuple):
    """The last sample of a node. `new`: the number of its new infohashes."""

    at: float
    interval_s: float
    size: int
    new: int


class Sweep:
    """The sweeps of a crawl. `position` is a stored position."""

    def __init__(self, now: float, position: int = 0) -> None:
        self.sweeps = 0
        self.asked = 0
        """Number of nodes queried for the first time in this sweep."""
        self._started_at = now
        self._spacings: deque[int] = deque(maxlen=SPACINGS_KEPT)
        self._spacing = KEY_SPACE
        """Estimated mean distance between neighbouring nodes; KEY_SPACE while fewer than K nodes are known."""
        log_of_lanes, progress = position & ((1 << LANES_BITS) - 1), position >> LANES_BITS
        if not 0 < position < 1 << POSITION_BITS or log_of_lanes >= LANES_MAX.bit_length():
            log_of_lanes = progress = 0
        self._lanes = lanes(1 << log_of_lanes, progress, PROGRESS_BITS)
        self._is_divided = progress > 0 or log_of_lanes > 0
        """Whether the number of lanes fits the size of the network. The first lookup estimates that size."""
        self._turn = 0
        self._again = WaitingNodes()
        self._again_turn = False
        self._questions = 0
        self._nodes: RecentDict[bytes, SampledNode] = RecentDict(NODES_MAX)
        self._site_ready_at: RecentDict[bytes, float] = RecentDict(SITES_MAX)
        self._in_flight: set[bytes] = set()
        self._silent: deque[Contact] = deque(maxlen=SILENT_MAX)
        """Nodes that did not answer in this sweep. They are queried again if the sweep rests before the next sweep."""
        self._samples: RecentDict[bytes, LastSample] = RecentDict(SAMPLES_KEPT)
        self._rests_until = now

    @property
    def position(self) -> int:
        """The position to store: all known nodes before it were queried, and no response is pending."""
        progress = min((lane.certain - lane.start << PROGRESS_BITS) // (lane.end - lane.start) for lane in self._lanes)
        return min(progress, (1 << PROGRESS_BITS) - 1) << LANES_BITS | len(self._lanes).bit_length() - 1

    @property
    def coverage(self) -> float:
        return sum(lane.progress for lane in self._lanes) / len(self._lanes)

    def known_share(self, now: float) -> float:
        """Estimate the known share of the network's infohashes from the last samples of the nodes.

        In the first sweep the share is multiplied by the coverage. New infohashes count as unknown, so the estimate is
        too low while there are many.
        """
        recent = [each for each in self._samples.values() if now - each.at < SAMPLE_AGE_MAX_S]
        size = sum(each.size for each in recent)
        share = 1 - sum(each.new for each in recent) / size if size else 0.0
        return share if self.sweeps else share * self.coverage

    def next_step(self, now: float) -> Step:
        """After a `Rest`, call it again at `until` or after a response."""
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
        """The node has `num` infohashes and sent `sampled` of them, of which `new` are new."""
        contact = ask.contact
        interval_s = min(max(interval_s, AGAIN_MIN_S), SWEEP_MAX_S)
        self._end(ask, closer)
        self._samples[contact.endpoint] = LastSample(now, interval_s, sampled, new)
        barren = 0 if new else self._barren(contact) + 1
        self._nodes[contact.endpoint] = SampledNode(self.sweeps, now + interval_s, barren)
        if num > sampled and barren < BARREN_MAX:
            self._again.add(contact, now + interval_s)

    def failed(self, ask: Ask, closer: Sequence[Contact], now: float) -> None:
        """The node did not answer, or does not support the query."""
        contact = ask.contact
        self._end(ask, closer)
        used_to_answer = contact.endpoint in self._nodes
        barren = self._barren(contact) + 1 if used_to_answer else BARREN_MAX
        self._nodes[contact.endpoint] = SampledNode(self.sweeps, now, barren)
        if barren < BARREN_MAX:
            self._again.add(contact, now + RETRY_S)
        elif not (used_to_answer or closer):
            self._silent.append(contact)

    def postponed(self, ask: Ask, now: float) -> None:
        """The query was not sent, because our node is busy."""
        self._end(ask, ())
        self._again.add(ask.contact, now + AGAIN_MIN_S)

    def searched(self, target: bytes, found: Sequence[Contact]) -> None:
        key = int.from_bytes(target)
        closest = nsmallest(K, found, key=lambda each: int.from_bytes(each.id) ^ key)
        self._note_spacing(key, closest)
        if not self._is_divided:
            self._divide()
        self._lane_of(key).searched(key, [int.from_bytes(each.id) for each in closest], self._spacing)
        self.add(found)

    def add(self, contacts: Iterable[Contact]) -> None:
        """Nodes far behind are left for the next sweep."""
        for contact in contacts:
            key = int.from_bytes(contact.id)
            lane, known = self._lane_of(key), self._nodes.get(contact.endpoint)
            was_passed = known is not None and known.sweep == self.sweeps and key <= lane.position
            if not (was_passed or contact.endpoint in self._in_flight):
                lane.add(key, contact, self._spacing)

    def _lane_of(self, key: int) -> SweepLane:
        return self._lanes[key * len(self._lanes) >> KEY_BITS]

    def _next_on_the_way(self, now: float) -> Step:
        if now < self._rests_until:
            return Rest(self._rests_until)
        if not self._is_divided:
            return self._first_search(now)
        for _ in self._lanes:
            self._turn = (self._turn + 1) % len(self._lanes)
            step = self._next_of_lane(self._lanes[self._turn], now)
            if step is not None:
                return step
        if all(lane.is_done for lane in self._lanes):
            self._finish(now)
            return Rest(max(self._rests_until, now + POLL_S))
        return Rest(now + POLL_S)

    def _first_search(self, now: float) -> Step:
        lane = self._lanes[0]
        if lane.is_searching:
            return Rest(now + POLL_S)
        lane.is_searching = True
        return Search(lane.position.to_bytes(ID_BYTES))

    def _next_of_lane(self, lane: SweepLane, now: float) -> Step | None:
        while not lane.must_wait(now, self._spacing):
            target = lane.next_target(self._spacing)
            if target is not None:
                lane.is_searching = True
                return Search(target.to_bytes(ID_BYTES))
            passed = lane.pop()
            if passed is None:
                return None
            key, contact = passed
            if self._may_pass(contact, now):
                self.asked += 1
                lane.asked(key, contact, now)
                return self._ask(contact, now)
        return None

    def _may_pass(self, contact: Contact, now: float) -> bool:
        """Return whether the node may be queried now. A node that must wait is queued for later."""
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
        """Return when the node's interval has passed, and our limits per host allow a query."""
        known = self._nodes.get(contact.endpoint)
        site_free_at = self._site_ready_at.get(site_of(contact.endpoint), 0.0) - (QUERIES_BURST - 1) / QUERIES_PER_S
        return site_free_at if known is None else max(known.again_at, site_free_at)

    def _end(self, ask: Ask, closer: Iterable[Contact]) -> None:
        """End a query, and add the contacts of the response if this was the first query to the node in this sweep.

        The contacts of a node that is queried often could drown out all others.
        """
        contact, target = ask.contact, int.from_bytes(ask.target)
        self._in_flight.discard(contact.endpoint)
        self._lane_of(int.from_bytes(contact.id)).passing.pop(contact.endpoint, None)
        known = self._nodes.get(contact.endpoint)
        if known is None or known.sweep != self.sweeps:
            closest = nsmallest(CLOSER_MAX, closer, key=lambda each: int.from_bytes(each.id) ^ target)
            self._note_spacing(target, closest)
            self.add(closest)

    def _barren(self, contact: Contact) -> int:
        known = self._nodes.get(contact.endpoint)
        return known.barren if known is not None else 0

    def _finish(self, now: float) -> None:
        intervals = sorted(each.interval_s for each in self._samples.values())
        interval_s = intervals[len(intervals) // 2] if intervals else SWEEP_MIN_S
        if self.asked > NODES_MAX // 2:
            interval_s = SWEEP_MAX_S  # some nodes may have been forgotten: use the longest interval
        self._rests_until = max(now, self._started_at + min(max(interval_s, SWEEP_MIN_S), SWEEP_MAX_S))
        self._started_at = self._rests_until
        self.asked = 0
        self.sweeps += 1
        self._divide()
        if now < self._rests_until:
            for contact in self._silent:
                self._again.add(contact, now)
        self._silent.clear()

    def _divide(self) -> None:
        nodes = KEY_SPACE // self._spacing
        count = min(max(1, nodes // LANE_NODES_MIN), LANES_MAX)
        left = [contact for lane in self._lanes for _, contact in lane.ahead] + self._again.contacts()
        self._lanes, self._is_divided = lanes(1 << (count.bit_length() - 1)), True
        self.add(left)

    def _note_spacing(self, target: int, found: list[Contact]) -> None:
        distances = sorted(int.from_bytes(each.id) ^ target for each in found)[:K]
        if len(distances) == K:
            self._spacings.append(distances[-1] // K)
            self._spacing = max(1, sorted(self._spacings)[len(self._spacings) // 2])


class WaitingNodes:
    """Nodes that wait until they may be queried again. If too many wait, further ones wait for the next sweep."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, Contact]] = []
        self._endpoints: set[bytes] = set()
        self._of_site: Counter[bytes] = Counter()

    def add(self, contact: Contact, at: float) -> None:
        site = site_of(contact.endpoint)
        if contact.endpoint in self._endpoints or len(self._heap) >= AGAIN_MAX:
            return
        if self._of_site[site] < AGAIN_OF_SITE_MAX:
            heappush(self._heap, (at, contact))
            self._endpoints.add(contact.endpoint)
            self._of_site[site] += 1

    def pop(self, now: float) -> Contact | None:
        if not self._heap or self._heap[0][0] > now:
            return None
        _, contact = heappop(self._heap)
        self._endpoints.discard(contact.endpoint)
        site = site_of(contact.endpoint)
        self._of_site[site] -= 1
        if not self._of_site[site]:
            del self._of_site[site]
        return contact

    def contacts(self) -> list[Contact]:
        return [contact for _, contact in self._heap]

    def next_at(self) -> float:
        return self._heap[0][0] if self._heap else float("inf")
