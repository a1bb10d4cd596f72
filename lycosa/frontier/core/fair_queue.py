"""Whose turn it is: units (hosts, or all hosts of one IP address) in two stages, each step O(log n), nothing scanned.

Units whose time has not come wait in a heap. Those that may be contacted now are *ready*, in a lane for each rank:
the lowest rank first, and within a lane first come, first served, except that the unit with the most work left goes
before when that is more than SHORT_S. Every FAIR_TURN-th turn is fair in any case. So, with k = FAIR_TURN:

- nobody starves: a unit with n units before it in its lane has its turn within k * (n + 1) turns of the lane, whatever
  the others have queued;
- no time is lost: longest work first is optimal for chains of equal jobs on limited places (Muntz and Coffman, 1969).
  It has (k - 1)/k of the turns and the rest do work too, so a crawl takes at most k / (k - 1) of the ideal, plus
  SHORT_S. The worst mix, hosts that need (2k - 1)/2k of all turns until the end beside a crowd of tiny ones, takes
  1 + 1/(4k - 2) of it: 3.3 % more for k = 8, but 17 % if every second turn were fair.

What is taken out leaves a void entry in its heap; whoever puts one in throws the void ones out when they are more than
the others and VOID_MAX.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

FAIR_TURN = 8
SHORT_S = 10.0
"""Seconds of work with which nobody needs to hurry: it cannot hold up the end of the crawl by more."""

VOID_MAX = 64
NO_WORK = math.inf
"""The rank of a unit that has nothing queued."""


@dataclass(slots=True, eq=False, kw_only=True)
class Entity:
    """Something that takes turns. `backlog` is about how many records it has queued, each worth `pace_s` seconds."""

    ready_at: float = 0.0
    paused_until: float = 0.0
    """The part of `ready_at` that no start asked for."""
    rank: float = NO_WORK
    backlog: int = 0
    pace_s: float = 0.0
    waits: HeapEntry | None = field(default=None, repr=False)
    """Its entry among the waiting, if it is there."""
    lane: Lane | None = field(default=None, repr=False)
    """The lane in which it is ready, if it is."""
    shrunk: int = 0
    grown: int = 0
    """Outside of these its place by work left is out of date: seven eighths and twice the backlog it was given for."""
    row: int = 0
    """Claims that had their turn since a lease had (`frontier.core.claims`)."""
    yields_until: float = 0.0

    def work_s(self) -> float:
        """Return about how many seconds of work are left."""
        return self.backlog * self.pace_s


HeapEntry = tuple[Any, ...]
"""On a heap: the order, a number that makes it unique, and the unit whose it is.

It is valid while it is the very one that its unit names. So its type must not say how long it is: compiled code would
take it apart and make a new one each time.
"""

U = TypeVar("U", bound=Entity)


class Lane:
    """The ready units of one rank: `units` in the order they came, those with much work also in a heap by that.

    The value of a unit is its valid entry of the heap, None when it has none.
    """

    __slots__ = ("_largest", "_stamp", "_turn", "rank", "units")

    def __init__(self, rank: float) -> None:
        self.rank = rank
        self.units: OrderedDict[Entity, HeapEntry | None] = OrderedDict()
        self._largest: list[HeapEntry] = []
        self._stamp = 0
        self._turn = 0

    def first(self) -> Entity:
        """Return the unit whose turn it is; it stays. There must be one."""
        units, heap = self.units, self._largest
        self._turn += 1
        if self._turn % FAIR_TURN:
            while heap:
                entry = heap[0]
                unit: Entity = entry[2]
                if units.get(unit) is not entry:
                    heappop(heap)
                elif unit.backlog < unit.shrunk:
                    self.grade(unit)
                else:
                    return unit
        unit = next(iter(units))
        units.move_to_end(unit)
        return unit

    def grade(self, unit: Entity) -> None:
        """Put the unit, new or not, to its place by the work it has left now."""
        backlog = unit.backlog
        unit.shrunk, unit.grown = backlog - (backlog >> 3), backlog << 1 or 1
        work_s = unit.work_s()
        if work_s <= SHORT_S:
            self.units[unit] = None
            return
        self._stamp += 1
        entry: HeapEntry = (-work_s, self._stamp, unit)
        self.units[unit] = entry
        heappush(self._largest, entry)
        if len(self._largest) > 2 * len(self.units) + VOID_MAX:
            self._largest = [entry for entry in self.units.values() if entry is not None]
            heapify(self._largest)

    def most_s(self) -> float:
        """Return about the most seconds of work that a unit has left, 0 when all have little."""
        heap = self._largest
        while heap and self.units.get(heap[0][2]) is not heap[0]:
            heappop(heap)
        return -heap[0][0] if heap else 0.0


class FairQueue(Generic[U]):
    """The units that have work and a free place. A unit may wait and be ready at once: see `Group`."""

    __slots__ = ("_lanes", "_ranks", "_stamp", "_waiting", "heap")

    def __init__(self) -> None:
        self.heap: list[HeapEntry] = []
        """The waiting by time. The first entry may be void."""
        self._waiting = 0
        self._stamp = 0
        self._lanes: dict[float, Lane] = {}
        self._ranks: list[float] = []

    def wait(self, unit: U, at: float) -> None:
        """Let the unit be `due` at this time, and not at the one it waited for before."""
        if unit.waits is None:
            self._waiting += 1
        elif unit.waits[0] == at:
            return
        self._stamp += 1
        entry: HeapEntry = (at, self._stamp, unit)
        unit.waits = entry
        heappush(self.heap, entry)
        if len(self.heap) > 2 * self._waiting + VOID_MAX:
            self.heap = [entry for entry in self.heap if entry[2].waits is entry]
            heapify(self.heap)

    def stop_waiting(self, unit: U) -> None:
        """Take the unit out of the waiting."""
        if unit.waits is not None:
            unit.waits = None
            self._waiting -= 1

    def enter(self, unit: U) -> None:
        """Make the unit ready, or move it to where its rank and its backlog have their place."""
        lane = unit.lane
        if lane is not None:
            if lane.rank == unit.rank:
                if not unit.shrunk <= unit.backlog < unit.grown:
                    lane.grade(unit)
                return
            del lane.units[unit]
        lane = self._lanes.get(unit.rank)
        if lane is None:
            lane = self._lanes[unit.rank] = Lane(unit.rank)
            heappush(self._ranks, unit.rank)
        unit.lane = lane
        lane.grade(unit)

    def leave(self, unit: U) -> None:
        """Take the unit out of the ready."""
        if unit.lane is not None:
            del unit.lane.units[unit]
            unit.lane = None

    def due(self, now: float) -> U | None:
        """Take one of the waiting whose time has come."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            entry = heappop(heap)
            unit: U = entry[2]
            if unit.waits is entry:
                unit.waits = None
                self._waiting -= 1
                return unit
        return None

    def next_due(self) -> float | None:
        """Return when the first of the waiting is due."""
        heap = self.heap
        while heap:
            entry = heap[0]
            if entry[2].waits is entry:
                at: float = entry[0]
                return at
            heappop(heap)
        return None

    def lane(self) -> Lane | None:
        """Return the lane of the lowest rank in which a unit is ready."""
        ranks, lanes = self._ranks, self._lanes
        while ranks:
            lane = lanes[ranks[0]]
            if lane.units:
                return lane
            if len(ranks) == 1:  # most crawls have one rank: its lane is kept
                return None
            del lanes[heappop(ranks)]
        return None

    def set_back(self, seconds: float) -> None:
        """Let all who wait be due so much sooner: the clock was set back."""
        valid = [entry for entry in self.heap if entry[2].waits is entry]
        self.heap = [(max(at - seconds, 0.0), stamp, unit) for at, stamp, unit in valid]
        heapify(self.heap)
        for entry in self.heap:
            entry[2].waits = entry
