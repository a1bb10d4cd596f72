"""Which pairs of a target may be lent now, and which one is best: ready ones in the order of use, the others by time.

The order is fair queueing (Demers, Keshav, Shenker 1989) with the worth of a proxy as its weight: each use moves a pair
back by its cost, so that in the long run a proxy that is worth twice as much is used twice as often, and none is
forgotten. A pair that comes new, or back from a rest, begins where the order stands, not at zero: otherwise all the
load would be on it until it had caught up. The one that is lent is drawn among the first FEW (of few proxies, among the
first quarter), so that the order of use is not the same each time.

Cheaper tiers come first: a dearer one is used only when no cheaper proxy is usable at all.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush
from itertools import islice

from lycosa.proxies.core.pool.target_state import ProxyFacts, ProxyTargetState

FEW, FEW_PART = 8, 4
WAITING_FACTOR = 4
"""Outdated entries are cleared away when there are more than so many for each pair."""


class UseOrder:
    """The pairs of one target. `stands` is the rank that was lent last; `tiers` ever had a ready pair."""

    def __init__(self) -> None:
        self._ready: dict[int, list[tuple[float, str]]] = {}
        self.tiers: list[int] = []
        self._waiting: list[tuple[float, str]] = []
        self.stands = 0.0

    def ready(self, member: ProxyTargetState) -> None:
        """Put it where its rank says."""
        member.rank = max(member.rank, self.stands)
        ready = self._ready.get(member.facts.tier)
        if ready is None:
            ready = self._ready[member.facts.tier] = []
            insort(self.tiers, member.facts.tier)
        insort(ready, (member.rank, member.key))
        member.queued = True

    def out(self, member: ProxyTargetState) -> None:
        """Take it out, wherever it is."""
        member.waits = False
        if member.queued:
            tier = self._ready[member.facts.tier]
            del tier[bisect_left(tier, (member.rank, member.key))]
            member.queued = False

    def wait(self, member: ProxyTargetState, members: Mapping[str, ProxyTargetState]) -> None:
        """Look at it again when its time has come."""
        member.waits = True
        heappush(self._waiting, (member.at, member.key))
        if len(self._waiting) > WAITING_FACTOR * (len(members) + FEW):
            self._waiting = sorted((each.at, each.key) for each in members.values() if each.waits)

    def due(self, now: float, members: Mapping[str, ProxyTargetState]) -> ProxyTargetState | None:
        """Take out a pair whose time has come, if there is one."""
        if not self._waiting or self._waiting[0][0] > now:
            return None  # as nearly always
        at = self.next_at(members)
        if at is None or at > now:
            return None
        member = members[heappop(self._waiting)[1]]
        member.waits = False
        return member

    def next_at(self, members: Mapping[str, ProxyTargetState]) -> float | None:
        """Return when a pair may be ready next, None when none waits."""
        while self._waiting:
            at, key = self._waiting[0]
            member = members.get(key)
            if member is not None and member.waits and member.at == at:
                return at
            heappop(self._waiting)
        return None

    def few(self, tier: int) -> int:
        """Return among how many of a tier one is drawn."""
        return min(FEW, max(1, len(self._ready[tier]) // FEW_PART))

    def kept_tiers(self) -> list[int]:
        """Return what `restore` has to know of tiers."""
        return sorted(self._ready)

    def restore(self, stands: float, tiers: Iterable[int], members: Mapping[str, ProxyTargetState]) -> None:
        """Stand as it stood when it was kept; the pairs say themselves who is ready, and who waits."""
        for tier in tiers:
            nobody = ProxyTargetState("", ProxyFacts(tier=tier), 0.0)
            self.ready(nobody)
            self.out(nobody)
        for member in members.values():
            if member.queued:
                self.ready(member)
            elif member.waits:
                self.wait(member, members)
        self.stands = stands

    def first(
        self,
        tier: int,
        count: int,
        fits: Callable[[ProxyTargetState], bool] | None,
        members: Mapping[str, ProxyTargetState],
    ) -> list[ProxyTargetState]:
        """Return the first ready pairs of a tier that fit, in order."""
        ready = self._ready[tier]
        if fits is None:
            return [members[key] for _, key in ready[:count]]
        return list(islice(filter(fits, (members[key] for _, key in ready)), count))
