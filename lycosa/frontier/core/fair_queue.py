"""The order in which entities (hosts, or all hosts of one IP address) are served.

Each operation takes amortized O(log n), except `shift`, which changes all waiting entries.

Entities that may not be contacted yet wait in a heap, ordered by time. The others are *ready*, in one lane per rank;
the lowest rank goes first. Within a lane the entity with the most work left goes first, if it has more than SHORT_S of
work; otherwise, and on every FAIR_TURN-th pick, the order is first come, first served. With k = FAIR_TURN this
guarantees:

- No starvation: an entity with n entities before it in its lane is picked within k * (n + 1) picks of the lane.
- A near-optimal crawl time: longest work first is optimal for chains of equal jobs with limited concurrency (Muntz and
  Coffman, 1969). It makes (k - 1)/k of the picks, so a crawl takes at most k / (k - 1) times the optimum, plus SHORT_S.
  The worst known mix of hosts takes 1 + 1/(4k - 2) times the optimum: 3.3 % more for k = 8, 17 % more for k = 2.

Removing an entity leaves a stale entry in its heap. If the heap then has over STALE_MAX more stale entries than valid
ones, the next push rebuilds it.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

FAIR_TURN = 8
SHORT_S = 10.0
"""Entities with at most this much work get no priority: each delays the end of the crawl by at most this time."""

STALE_MAX = 64

NO_WORK = math.inf
"""The rank of an entity with nothing queued."""


@dataclass(slots=True, eq=False, kw_only=True)
class Entity:
    """A host or a group of hosts. `ready_at` is when it may next be contacted (unix seconds).

    `backlog` is the approximate number of queued records. A record takes `record_s` seconds.
    """

    ready_at: float = 0.0
    paused_until: float = 0.0
    """When the last pause or block ends. `ready_at` also includes the delay after a start."""
    rank: float = NO_WORK
    backlog: int = 0
    record_s: float = 0.0
    wait_entry: HeapEntry | None = field(default=None, repr=False)
    """None if it is not waiting."""
    lane: Lane | None = field(default=None, repr=False)
    """None if it is not ready."""
    regrade_below: int = 0
    regrade_from: int = 0
    """`Lane.grade` is called again once the backlog leaves this range: 7/8 to twice the backlog at the last call."""
    claims_in_row: int = 0
    """Claims started since the last lease (`frontier.core.claims`)."""
    yields_until: float = 0.0

    def work_s(self) -> float:
        return self.backlog * self.record_s


HeapEntry = tuple[Any, ...]
"""(sort key, unique number, entity). An entry is valid while its entity or lane refers to this very object.

The type must not fix the length: mypyc would unbox the tuple, and build a new one on each access.
"""

E = TypeVar("E", bound=Entity)


class Lane:
    """The ready entities of one rank, in order of arrival.

    `entities` maps an entity with more than SHORT_S of work to its valid heap entry, others to None.
    """

    __slots__ = ("_largest", "_number", "_picks", "entities", "rank")

    def __init__(self, rank: float) -> None:
        self.rank = rank
        self.entities: OrderedDict[Entity, HeapEntry | None] = OrderedDict()
        self._largest: list[HeapEntry] = []
        self._number = 0
        self._picks = 0

    def pick(self) -> Entity:
        """Return the next entity, without removing it. The lane must not be empty."""
        entities, heap = self.entities, self._largest
        self._picks += 1
        if self._picks % FAIR_TURN:
            while heap:
                entry = heap[0]
                entity: Entity = entry[2]
                if entities.get(entity) is not entry:
                    heappop(heap)
                elif entity.backlog < entity.regrade_below:
                    self.grade(entity)
                else:
                    return entity
        entity = next(iter(entities))
        entities.move_to_end(entity)
        return entity

    def grade(self, entity: Entity) -> None:
        """Add the entity, or update its position after its work has changed."""
        backlog = entity.backlog
        entity.regrade_below, entity.regrade_from = backlog - (backlog >> 3), backlog << 1 or 1
        work_s = entity.work_s()
        if work_s <= SHORT_S:
            self.entities[entity] = None
            return
        self._number += 1
        entry: HeapEntry = (-work_s, self._number, entity)
        self.entities[entity] = entry
        heappush(self._largest, entry)
        if len(self._largest) > 2 * len(self.entities) + STALE_MAX:
            self._largest = [entry for entry in self.entities.values() if entry is not None]
            heapify(self._largest)

    def longest_work_s(self) -> float:
        """The work of the busiest entity; 0 if none has more than SHORT_S."""
        heap = self._largest
        while heap and self.entities.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return -heap[0][0] if heap else 0.0


class FairQueue(Generic[E]):
    """The entities with work and a free slot, either waiting or ready. An `AddressGroup` may be both."""

    __slots__ = ("_lanes", "_number", "_ranks", "_waiting", "heap")

    def __init__(self) -> None:
        self.heap: list[HeapEntry] = []
        """Earliest first. The first entry may be stale."""
        self._waiting = 0
        self._number = 0
        self._lanes: dict[float, Lane] = {}
        self._ranks: list[float] = []

    def wait(self, entity: E, at: float) -> None:
        """Let the entity wait until `at`. This replaces the time of an earlier call."""
        if entity.wait_entry is None:
            self._waiting += 1
        elif entity.wait_entry[0] == at:
            return
        self._number += 1
        entry: HeapEntry = (at, self._number, entity)
        entity.wait_entry = entry
        heappush(self.heap, entry)
        if len(self.heap) > 2 * self._waiting + STALE_MAX:
            self.heap = [entry for entry in self.heap if entry[2].wait_entry is entry]
            heapify(self.heap)

    def stop_waiting(self, entity: E) -> None:
        if entity.wait_entry is not None:
            entity.wait_entry = None
            self._waiting -= 1

    def add_ready(self, entity: E) -> None:
        lane = entity.lane
        if lane is not None:
            if lane.rank == entity.rank:
                if not entity.regrade_below <= entity.backlog < entity.regrade_from:
                    lane.grade(entity)
                return
            del lane.entities[entity]
        lane = self._lanes.get(entity.rank)
        if lane is None:
            lane = self._lanes[entity.rank] = Lane(entity.rank)
            heappush(self._ranks, entity.rank)
        entity.lane = lane
        lane.grade(entity)

    def remove_ready(self, entity: E) -> None:
        if entity.lane is not None:
            del entity.lane.entities[entity]
            entity.lane = None

    def pop_due(self, now: float) -> E | None:
        heap = self.heap
        while heap and heap[0][0] <= now:
            entry = heappop(heap)
            entity: E = entry[2]
            if entity.wait_entry is entry:
                entity.wait_entry = None
                self._waiting -= 1
                return entity
        return None

    def next_due(self) -> float | None:
        heap = self.heap
        while heap:
            entry = heap[0]
            if entry[2].wait_entry is entry:
                at: float = entry[0]
                return at
            heappop(heap)
        return None

    def first_lane(self) -> Lane | None:
        """The lane of the lowest rank with a ready entity."""
        ranks, lanes = self._ranks, self._lanes
        while ranks:
            lane = lanes[ranks[0]]
            if lane.entities:
                return lane
            # Most crawls have one rank: keep its lane after a moment without work.
            if len(ranks) == 1:
                return None
            del lanes[heappop(ranks)]
        return None

    def shift(self, seconds: float) -> None:
        valid = [entry for entry in self.heap if entry[2].wait_entry is entry]
        self.heap = [(max(at - seconds, 0.0), number, entity) for at, number, entity in valid]
        heapify(self.heap)
        for entry in self.heap:
            entry[2].wait_entry = entry
