"""The order in which the members of a target are leased. Ready members are sorted by rank, waiting members by time.

The order is fair queueing (Demers, Keshav, Shenker 1989): each use raises the rank of a member by its cost. In the long
run a proxy with half the cost is used twice as often, and none is starved. A new member, or one whose cool-down has
ended, starts at the virtual time (the highest rank leased so far). Otherwise it would take all the load until it had
caught up.

To vary the order, the proxy to lease is drawn at random from the first quarter of the ready members, at least one and
at most DRAW_MAX.

A proxy on trial whose uses have all failed comes last in its tier: it is tried only when no better proxy is free. A
dearer tier is used only when the cheaper tiers have too few usable proxies.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import islice

from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyTargetState

DRAW_MAX, DRAW_SHARE = 8, 4
LAST = 1e12
"""Added to the rank of a member that comes after all others. It exceeds any rank."""

WAITING_FACTOR = 4
"""The heap is rebuilt when it has more than this many entries per member. Removed members leave stale entries there."""

Members = Mapping[str, ProxyTargetState]


class UseOrder:
    """The order of use on one target.

    `virtual_time`: the highest rank leased so far. `tiers`: all tiers that ever had ready members.
    """

    def __init__(self) -> None:
        self._ready: dict[int, list[tuple[float, str]]] = {}
        self.tiers: list[int] = []
        self._waiting: list[tuple[float, str]] = []
        self.virtual_time = 0.0

    def add_ready(self, member: ProxyTargetState) -> None:
        member.rank = max(member.rank, self.virtual_time)
        ready = self._ready.get(member.facts.tier)
        if ready is None:
            ready = self._ready[member.facts.tier] = []
            insort(self.tiers, member.facts.tier)
        rank = member.rank if not member.half_open or not member.only_failed else member.rank + LAST
        insort(ready, (rank, member.key))
        member.queued = True

    def add_waiting(self, member: ProxyTargetState, members: Members) -> None:
        """Queue a member for `pop_due`, which returns it once it is eligible."""
        member.waiting = True
        heappush(self._waiting, (member.eligible_at, member.key))
        if len(self._waiting) > WAITING_FACTOR * (len(members) + DRAW_MAX):
            self._waiting = sorted((each.eligible_at, each.key) for each in members.values() if each.waiting)

    def remove(self, member: ProxyTargetState) -> None:
        member.waiting = False
        if member.queued:
            ready = self._ready[member.facts.tier]
            rank = member.rank if not member.half_open or not member.only_failed else member.rank + LAST
            del ready[bisect_left(ready, (rank, member.key))]
            member.queued = False

    def pop_due(self, now: float, members: Members) -> ProxyTargetState | None:
        if not self._waiting or self._waiting[0][0] > now:
            return None  # the usual case
        at = self.next_at(members)
        if at is None or at > now:
            return None
        member = members[heappop(self._waiting)[1]]
        member.waiting = False
        return member

    def next_at(self, members: Members) -> float | None:
        while self._waiting:
            at, key = self._waiting[0]
            member = members.get(key)
            if member is not None and member.waiting and member.eligible_at == at:
                return at
            heappop(self._waiting)
        return None

    def draw_size(self, tier: int) -> int:
        """Return the number of ready members of a tier from which the next proxy is drawn."""
        ready = self._ready[tier]
        has_failing = ready and ready[-1][0] >= LAST
        count = (bisect_left(ready, (LAST, "")) if has_failing else 0) or len(ready)
        return min(DRAW_MAX, max(1, count // DRAW_SHARE))

    def known_tiers(self) -> list[int]:
        return sorted(self._ready)

    def restore(self, virtual_time: float, tiers: Iterable[int], members: Members) -> None:
        for tier in tiers:
            placeholder = ProxyTargetState("", ProxyFacts(tier=tier), 0.0)
            self.add_ready(placeholder)
            self.remove(placeholder)
        for member in members.values():
            if member.queued:
                self.add_ready(member)
            elif member.waiting:
                self.add_waiting(member, members)
        self.virtual_time = virtual_time

    def first(
        self, tier: int, count: int, fits: Callable[[ProxyTargetState], bool] | None, members: Members
    ) -> list[ProxyTargetState]:
        """Return the first `count` ready members of a tier that fit, in order."""
        ready = self._ready[tier]
        if fits is None:
            return [members[key] for _, key in ready[:count]]
        return list(islice(filter(fits, (members[key] for _, key in ready)), count))


def preferred(found: Sequence[ProxyTargetState]) -> int:
    """Return how many of these members may be drawn.

    Members whose uses have all failed come last, and may be drawn only if there are no others.
    """
    if not found or not found[-1].half_open:  # the usual case, because members whose uses all failed are last
        return len(found)
    return next((place for place, member in enumerate(found) if member.only_failed), 0) or len(found)
