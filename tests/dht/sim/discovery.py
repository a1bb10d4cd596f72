"""Discovery in virtual time: compares the sweep, among nodes with synthetic infohashes, with an ideal sweep.

Each infohash is stored at the eight nodes closest to it. A node returns 20 of its infohashes, the same ones for its
interval (BEP 51), and contacts from its k-buckets, which are sparse far from its id. The limits are those of a real
node. `OracleSweep` knows from the start which nodes answer, and queries each one as soon as its interval and the
limits allow: no crawler can do better, except by luck with the samples.
"""

from __future__ import annotations

import heapq
import random
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from lycosa.dht.core.endpoints import Contact
from lycosa.dht.core.limits import NodeLimits
from lycosa.dht.crawler.core.lane import KEY_SPACE
from lycosa.dht.crawler.core.sampler_trust import SamplerTrust
from lycosa.dht.crawler.core.sweep import POSITION_BITS, Ask, Rest, Search, Step, Sweep

K = 8
SAMPLES = 20
SLOTS = 32
TIMEOUT_S = 3.0
SEARCH_S = 2.0
SEARCHED = 16
"""Number of nodes that a lookup queries."""
BOOTSTRAP = 8
RETRY_S = 1.0


class Lie(StrEnum):
    """The answers of a lying node."""

    ALWAYS_THE_SAME = "always the same sample, a claim to have a million infohashes, and an interval of 0"
    NEVER_AGAIN = "a claim to have a million infohashes, and an interval of six hours"
    SPAM = "invented infohashes in each answer, a claim to have a million, an interval of 0, and dead contacts"


@dataclass(frozen=True)
class Population:
    """The nodes and the infohashes. `intervals` are (weight, seconds)."""

    nodes: int = 200
    infohashes: int = 20_000
    intervals: tuple[tuple[float, float], ...] = ((0.25, 60.0), (0.5, 600.0), (0.25, 21_600.0))
    silent: float = 0.1
    """Share of nodes that never answer, although other nodes return them."""
    without_samples: float = 0.1
    """Share of nodes without BEP 51."""
    loss: float = 0.05
    """Share of queries that are lost, or whose answers are lost."""
    latency_s: tuple[float, float] = (0.05, 0.4)
    liars: float = 0.0
    lie: Lie = Lie.SPAM


@dataclass(eq=False)
class SimulatedNode:
    """A node, with its infohashes and contacts."""

    key: int
    contact: Contact
    interval_s: float
    silent: bool = False
    has_samples: bool = True
    lie: Lie | None = None
    stored: array[int] = field(default_factory=lambda: array("q"))
    contacts: list[SimulatedNode] = field(default_factory=list)
    sample: Sequence[int] = ()
    sample_until: float = -1.0
    free_at: float = 0.0
    """When the crawler may query it again, according to the answers that reached the crawler."""

    def answer_sample(self, now: float, chance: random.Random) -> tuple[Sequence[int], int, float]:
        """Return a sample, the number of infohashes that the node claims to have, and its interval."""
        if self.lie is Lie.SPAM:
            return [-chance.getrandbits(62) - 1 for _ in range(SAMPLES)], 1_000_000, 0.0
        if now >= self.sample_until:
            self.sample = chance.sample(self.stored, min(SAMPLES, len(self.stored)))
            self.sample_until = float("inf") if self.lie is Lie.ALWAYS_THE_SAME else now + self.interval_s
        if self.lie is not None:
            return self.sample, 1_000_000, 0.0 if self.lie is Lie.ALWAYS_THE_SAME else 21_600.0
        return self.sample, len(self.stored), self.interval_s

    def closest_known(self, target: int, chance: random.Random) -> list[Contact]:
        """Return the contacts in its answer."""
        if self.lie is Lie.SPAM:
            return [_dead_contact(target ^ chance.getrandbits(145), chance) for _ in range(K)]
        closest = heapq.nsmallest(K, self.contacts, key=lambda each: each.key ^ target)
        return [each.contact for each in closest]


class KeySpace:
    """All nodes, sorted by key."""

    def __init__(self, population: Population, chance: random.Random) -> None:
        self.population = population
        self.nodes = [self._node(number, chance) for number in range(population.nodes)]
        self.nodes.sort(key=lambda each: each.key)
        self.keys = [each.key for each in self.nodes]
        self.by_endpoint = {each.contact.endpoint: each for each in self.nodes}
        self._fill_tables(0, len(self.nodes), 159, chance)
        self.answering = [each for each in self.nodes if not each.silent and each.lie is not Lie.SPAM]
        self._store_infohashes(chance)

    def closest(self, target: int, count: int, nodes: list[SimulatedNode] | None = None) -> list[SimulatedNode]:
        """Return the nodes that are closest to a target."""
        nodes = self.nodes if nodes is None else nodes
        low, high, bit = 0, len(nodes), 159
        while high - low > count:
            middle = _middle(nodes, low, high, bit)
            narrowed = (middle, high) if target >> bit & 1 else (low, middle)
            if narrowed[1] - narrowed[0] < count:
                break
            (low, high), bit = narrowed, bit - 1
        return sorted(nodes[low:high], key=lambda each: each.key ^ target)[:count]

    def _node(self, number: int, chance: random.Random) -> SimulatedNode:
        population = self.population
        weights, intervals = zip(*population.intervals, strict=True)
        contact = Contact(chance.randbytes(20), bytes([20, number >> 16, number >> 8 & 255, number & 255, 26, 225]))
        node = SimulatedNode(int.from_bytes(contact.id), contact, chance.choices(intervals, weights)[0])
        kind = chance.random()
        if kind < population.liars:
            node.lie = population.lie
        else:
            node.silent = chance.random() < population.silent
            node.has_samples = chance.random() >= population.without_samples
        return node

    def _fill_tables(self, low: int, high: int, bit: int, chance: random.Random) -> None:
        """Give each node K random contacts of each subtree beside its own."""
        if high - low < 2:
            return
        middle = _middle(self.nodes, low, high, bit)
        for own, other in (((low, middle), (middle, high)), ((middle, high), (low, middle))):
            others = range(*other)
            for node in self.nodes[slice(*own)]:
                node.contacts += [self.nodes[each] for each in chance.sample(others, min(K, len(others)))]
        self._fill_tables(low, middle, bit - 1, chance)
        self._fill_tables(middle, high, bit - 1, chance)

    def _store_infohashes(self, chance: random.Random) -> None:
        """Store each infohash at the nodes closest to its prefix. There are 4 to 8 times as many prefixes as nodes."""
        bits = len(self.nodes).bit_length() + 2
        cells = [self.closest(cell << (160 - bits), K, self.answering) for cell in range(1 << bits)]
        for infohash in range(self.population.infohashes):
            for node in cells[chance.getrandbits(bits)]:
                node.stored.append(infohash)


class SweepLike(Protocol):
    """Decides which node to query next."""

    def next_step(self, now: float) -> Step:
        """Return the next step."""

    def answered(
        self, ask: Ask, closer: Iterable[Contact], now: float, *, interval_s: float, num: int, sampled: int, new: int
    ) -> None:
        """Take an answer."""

    def failed(self, ask: Ask, closer: Iterable[Contact], now: float) -> None:
        """Take a failure."""

    def searched(self, target: bytes, found: Iterable[Contact]) -> None:
        """Take the result of a lookup."""


class OracleSweep:
    """Queries every node that answers. The one that has waited longest goes first."""

    def __init__(self, space: KeySpace) -> None:
        useful = [each for each in space.answering if each.has_samples and each.lie is None]
        self._due = [(0.0, each.contact) for each in useful]
        heapq.heapify(self._due)

    def next_step(self, now: float) -> Step:
        """Return the next query."""
        if not self._due:
            return Rest(now + RETRY_S)
        at, contact = self._due[0]
        if at > now:
            return Rest(at)
        heapq.heappop(self._due)
        return Ask(contact, contact.id)

    def answered(
        self, ask: Ask, closer: Iterable[Contact], now: float, *, interval_s: float, num: int, sampled: int, new: int
    ) -> None:
        """Query it again when its interval has passed."""
        heapq.heappush(self._due, (now + interval_s, ask.contact))

    def failed(self, ask: Ask, closer: Iterable[Contact], now: float) -> None:
        """Query it again soon."""
        heapq.heappush(self._due, (now + RETRY_S, ask.contact))

    def searched(self, target: bytes, found: Iterable[Contact]) -> None:
        """There are no lookups."""


class Discovery:
    """Runs a sweep. `curve` has a row (seconds, infohashes found) for every `every_s`."""

    def __init__(
        self, space: KeySpace, sweep: SweepLike, seed: int, limits: NodeLimits, *, trust: SamplerTrust | None = None
    ) -> None:
        self.space, self.sweep, self.limits, self.trust = space, sweep, limits, trust
        self.chance = random.Random(seed)
        self.now = 0.0
        self.found: set[int] = set()
        self.fakes = 0
        self.curve: list[tuple[float, int]] = []
        self.estimates: list[tuple[float, float]] = []
        self.asked: Counter[bytes] = Counter()
        self.samples = self.searches = self.stale_positions = 0
        self._agenda: list[tuple[float, int, Callable[..., None], tuple[object, ...]]] = []
        self._numbers = 0
        self._free = SLOTS
        self._wakes_at = float("inf")
        for node in space.nodes:
            node.sample_until, node.free_at = -1.0, 0.0

    def run(self, until: float, every_s: float = 60.0) -> Discovery:
        """Run to a time."""
        for tick in range(int(self.now / every_s) + 1, int(until / every_s) + 1):
            self._at(tick * every_s, self._note)
        self._step()
        while self._agenda and self._agenda[0][0] <= until:
            self.now, _, action, arguments = heapq.heappop(self._agenda)
            action(*arguments)
        self.now = until
        return self

    def share_at(self, when: float) -> float:
        """Return the share of all infohashes that were found until then."""
        return next(found for at, found in reversed(self.curve) if at <= when) / self.space.population.infohashes

    def _at(self, when: float, action: Callable[..., None], *arguments: object) -> None:
        self._numbers += 1
        heapq.heappush(self._agenda, (when, self._numbers, action, arguments))

    def _note(self) -> None:
        self.curve.append((self.now, len(self.found)))
        if isinstance(self.sweep, Sweep):
            self.estimates.append((self.now, self.sweep.known_share(self.now)))

    def _step(self) -> None:
        while self._free:
            step = self.sweep.next_step(self.now)
            if isinstance(step, Rest):
                assert step.until > self.now, "a rest that does not move on"
                if step.until < self._wakes_at:
                    self._wakes_at = step.until
                    self._at(step.until, self._wake, step.until)
                return
            self._free -= 1
            if isinstance(step, Search):
                self._search(step)
            else:
                node = self.space.by_endpoint.get(step.contact.endpoint)
                assert node is None or self.now >= node.free_at, "asked before its interval was over"
                self._send(step)

    def _wake(self, when: float) -> None:
        if when == self._wakes_at:
            self._wakes_at = float("inf")
            self._step()

    def _send(self, ask: Ask) -> None:
        wait_s = self.limits.query_wait_s(ask.contact.endpoint, self.now)
        if wait_s:
            self._at(self.now + wait_s, self._send, ask)
            return
        self.asked[ask.contact.endpoint] += 1
        node = self.space.by_endpoint.get(ask.contact.endpoint)
        if node is None or node.silent or self.chance.random() < self.space.population.loss:
            self._at(self.now + TIMEOUT_S, self._fail, ask)
        else:
            self._at(self.now + self.chance.uniform(*self.space.population.latency_s), self._answer, ask, node)

    def _fail(self, ask: Ask) -> None:
        self._free += 1
        self.sweep.failed(ask, (), self.now)
        self._step()

    def _answer(self, ask: Ask, node: SimulatedNode) -> None:
        self._free += 1
        closer = node.closest_known(int.from_bytes(ask.target), self.chance)
        if node.has_samples:
            sample, num, interval_s = node.answer_sample(self.now, self.chance)
            self._check_position(node)
            new = self._take(sample, ask.contact)
            node.free_at = self.now + interval_s
            self.sweep.answered(ask, closer, self.now, interval_s=interval_s, num=num, sampled=len(sample), new=new)
        else:
            self.sweep.failed(ask, closer, self.now)
        self._step()

    def _take(self, sample: Sequence[int], sampler: Contact) -> int:
        """Do what triage does, and report the outcome of the infohashes some minutes later."""
        self.samples += len(sample)
        if self.trust is not None and not self.trust.trusts(sampler.endpoint, self.now):
            return 0
        new = [each for each in sample if each not in self.found]
        self.found.update(each for each in new if each >= 0)
        self.fakes += sum(each < 0 for each in new)
        if self.trust is not None:
            for infohash in new:
                fetched = infohash >= 0 and self.chance.random() < FETCHED
                self._at(self.now + self.chance.uniform(60.0, 600.0), self._tried, sampler, fetched)
        return len(new)

    def _tried(self, sampler: Contact, fetched: bool) -> None:
        assert self.trust is not None
        self.trust.tried(sampler.endpoint, self.now, fetched=fetched)

    def _check_position(self, node: SimulatedNode) -> None:
        """Count the sweep's position as stale if it is past a node whose first answer has not reached triage yet.

        A restart from this position would skip the node.
        """
        if isinstance(self.sweep, Sweep) and self.asked[node.contact.endpoint] == 1:
            self.stale_positions += not self.sweep.sweeps and self.sweep.position > node.key >> (160 - POSITION_BITS)

    def _search(self, search: Search) -> None:
        self.searches += 1
        target = int.from_bytes(search.target)
        asked = self.space.closest(target, SEARCHED)
        for node in asked:
            if not self.limits.query_wait_s(node.contact.endpoint, self.now):
                self.asked[node.contact.endpoint] += 1
        found = [each.contact for each in asked if not each.silent][:K]
        self._at(self.now + SEARCH_S, self._searched, search, found)

    def _searched(self, search: Search, found: list[Contact]) -> None:
        self._free += 1
        self.sweep.searched(search.target, found)
        self._step()


FETCHED = 0.3
"""Share of infohashes whose metadata a peer delivers."""


def bootstrap(space: KeySpace, chance: random.Random) -> list[Contact]:
    """Return the contacts of a node that has just joined."""
    return [each.contact for each in chance.sample(space.nodes, min(BOOTSTRAP, len(space.nodes)))]


def _middle(nodes: list[SimulatedNode], low: int, high: int, bit: int) -> int:
    """Return the index of the first key with this bit set. Keys from `low` to `high` have the same higher bits."""
    prefix = nodes[low].key >> (bit + 1)
    return bisect_left(nodes, (prefix << 1 | 1) << bit, low, high, key=lambda each: each.key)


def _dead_contact(key: int, chance: random.Random) -> Contact:
    return Contact((key % KEY_SPACE).to_bytes(20), bytes([21, *chance.randbytes(3), 26, 225]))
