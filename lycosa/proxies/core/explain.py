"""Why a proxy would be lent for a target now, or why not: what is known goes in, a verdict for each proxy comes out.

    why         what it means                                                       until
    ---         ---------------------------------------------------------------     -------------------------------
    NEXT        one of those among which the next lease is drawn
    BEHIND      it could be lent, and others come first in the order of use
    DEARER      it could be lent, and a cheaper one works, and is worth waiting for
    SESSION     it could be lent, and the session has another one
    PACED       it was lent a moment ago: the delay, or the guard against cascading bans
    LEASED      somebody has it                                                     its lease ends by then
    TRIED       after a rest one lease tries it alone, and is under way             its lease ends by then
    COOLING     it was banned here, or could not be reached                         its rest ends
    EXIT        another one was banned here that comes out at the same address      its rest ends
    BANNED      it was banned until somebody lifts that
    DEAD        nobody gets it until a check finds it well: it cannot be reached, or is not fit
    AVOIDED     the wish says: not this one
    TAGS        it does not have the tags that the wish asks for
    SPARE       it is not in the pool of this target, which takes it in when it needs more

Proxies that the target would be filled up with first are taken for members, as they are when a lease is asked for.
`explain` never changes what it looks at, and is right for as long as nobody else does anything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.order import FEW, FEW_PART
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import ProxyRequest, TargetPool
from lycosa.proxies.core.pool.target_state import SAME_EXIT, ProxyFacts, ProxyState, ProxyTargetState, rest_with

NEAREST_MAX = 1_000
"""Proxies of the whole pool that are looked at for those a target does not have, the nearest first."""


class Why(StrEnum):
    """As in the table above, which is the order in which verdicts are told."""

    NEXT = "next"
    BEHIND = "behind"
    DEARER = "dearer"
    SESSION = "session"
    PACED = "paced"
    LEASED = "leased"
    TRIED = "tried"
    COOLING = "cooling"
    EXIT = "exit"
    BANNED = "banned"
    DEAD = "dead"
    AVOIDED = "avoided"
    TAGS = "tags"
    SPARE = "spare"


ORDER = {why: number for number, why in enumerate(Why)}
ELIGIBLE = frozenset({Why.NEXT, Why.BEHIND, Why.DEARER, Why.SESSION})
"""It could be lent, if that were all."""


class ProxyVerdict(NamedTuple):
    """What there is to say of one proxy. `until` (unix seconds) as in the table, 0.0 for none.

    `place` is that in the order of use among those of its tier that could be lent, the first is 1; 0: none. `weight` is
    how often it is used compared with a proxy that answers at once and always: 0 to 1. `share` is how likely the next
    lease is this one. `reason` is what was told of its last ban or failure. `joins`: no member before the next lease.
    """

    key: str
    why: Why
    state: ProxyState
    until: float = 0.0
    place: int = 0
    weight: float = 0.0
    share: float = 0.0
    tier: int = 0
    reason: str = ""
    joins: bool = False


@dataclass(frozen=True, slots=True)
class TargetSnapshot:
    """A target at one moment: what a back end has to tell.

    `stands` is the place of the order, `deadlines` say by key when a lease of it ends (the first, if it has several),
    `bound` is the proxy of the session that the wish names, `interval_s` the least time between two leases of one;
    `is_filled`: it is not filled up before the next lease of this kind.
    """

    policy: TargetPolicy
    members: Mapping[str, ProxyTargetState]
    stands: float = 0.0
    deadlines: Mapping[str, float] | None = None
    bound: str | None = None
    interval_s: float = 0.0
    is_filled: bool = False


def explain(
    seen: TargetSnapshot, nearest: Sequence[tuple[str, ProxyFacts]], request: ProxyRequest, now: float
) -> list[ProxyVerdict]:
    """Return a verdict for each proxy, those that may be lent first. `nearest`: those of the whole pool, in order."""
    members, joining, spare = _filled(seen, nearest, request, now)
    turn = _turn(members, seen, request, now)
    verdicts = [turn.verdict(member, joins=member.key in joining) for member in members.values()]
    verdicts += [_spare(key, facts, request, now) for key, facts in spare]
    return sorted(verdicts, key=lambda each: (ORDER[each.why], each.tier, each.place, each.until, each.key))


def seen_in(
    pool: GlobalPool, target: str, request: ProxyRequest, now: float
) -> tuple[TargetSnapshot, list[tuple[str, ProxyFacts]]]:
    """Return what `explain` wants of the machine itself. A target that is not there stays away."""
    its = pool.targets.get(target) or TargetPool(pool.policy_of(target))
    its.expire(now)
    bound = its.session_key(request.session, now) if request.session else None
    seen = TargetSnapshot(
        its.policy, its.members, its.stands, its.deadlines(), bound, its.interval_s(now), request.kind in its.filled
    )
    return seen, [(key, pool.facts(key)) for key, _ in zip(pool.nearest(), range(NEAREST_MAX), strict=False)]


def explained(pool: GlobalPool, target: str, request: ProxyRequest, now: float) -> list[ProxyVerdict]:
    """Explain what the machine itself would do."""
    return explain(*seen_in(pool, target, request, now), request, now)


def lacks_reason(verdict: ProxyVerdict) -> bool:
    """Whether what is in its way holds everywhere, so that its reason is known of the proxy, not of the target."""
    return verdict.why is Why.DEAD or (verdict.why is Why.COOLING and not verdict.reason)


def with_reason(verdict: ProxyVerdict, everywhere: Mapping[str, str]) -> ProxyVerdict:
    """Return a verdict with its reason; `everywhere` are those of the whole pool, by key."""
    return verdict._replace(reason=everywhere.get(verdict.key, "")) if lacks_reason(verdict) else verdict


def words(verdict: ProxyVerdict, when: Callable[[float], str], *, asked: str = "") -> str:
    """Return a verdict in words. `when` says a time; `asked`: which tags were asked for, in words."""
    until = when(verdict.until) if verdict.until else ""
    place, because = _th(verdict.place), f" ({verdict.reason})" if verdict.reason else ""
    told = {
        Why.NEXT: f"may be lent next: {verdict.share:.0%} of the draws",
        Why.BEHIND: f"ready, {place} in the order of use",
        Why.DEARER: "ready, but a cheaper one works",
        Why.SESSION: "ready, but the session has another one",
        Why.PACED: f"was lent a moment ago: again {until}",
        Why.LEASED: f"lent: its lease ends {until}",
        Why.TRIED: f"is being tried alone after a rest: that lease ends {until}",
        Why.COOLING: f"rests until {until}{because}",
        Why.EXIT: f"rests until {until}: {verdict.reason}",
        Why.BANNED: f"banned until somebody lifts it{because}",
        Why.DEAD: f"dead until a check finds it well{because}",
        Why.AVOIDED: "the request excludes it",
        Why.TAGS: f"does not have the tags that were asked for{f' ({asked})' if asked else ''}",
        Why.SPARE: "not in the pool of this target, which takes it in when it needs more",
    }[verdict.why]
    trial = ", on trial after a rest" if verdict.state is ProxyState.HALF_OPEN and verdict.why in ELIGIBLE else ""
    return told + trial + (", joins with the next lease" if verdict.joins and verdict.why in ELIGIBLE else "")


# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Turn:
    """Who may be lent now: `places` in the order of use by key, the `drawn` among which the next one is."""

    seen: TargetSnapshot
    request: ProxyRequest
    now: float
    places: Mapping[str, int]
    drawn: frozenset[str]
    tier: int | None
    bound: str | None

    def verdict(self, member: ProxyTargetState, *, joins: bool) -> ProxyVerdict:
        """Return that of a member."""
        why, until = self._why(member)
        share = 1 / len(self.drawn) if why is Why.NEXT else 0.0
        place = self.places.get(member.key, 0) if why in ELIGIBLE else 0
        state, tier = member.state(self.now), member.facts.tier
        return ProxyVerdict(member.key, why, state, until, place, 1 / member.cost(), share, tier, member.reason, joins)

    def _why(self, member: ProxyTargetState) -> tuple[Why, float]:
        if not self.request.fits(member) and member.key != self.bound:  # a session keeps what it has
            return (Why.AVOIDED if self.request.means(member) else Why.TAGS), 0.0
        if member.key not in self.places:
            return _refused(member, self.seen, self.now)
        if member.key in self.drawn:
            return Why.NEXT, 0.0
        if self.bound is not None:
            return Why.SESSION, 0.0
        return (Why.DEARER if self.tier is not None and member.facts.tier > self.tier else Why.BEHIND), 0.0


def _turn(members: Mapping[str, ProxyTargetState], seen: TargetSnapshot, request: ProxyRequest, now: float) -> _Turn:
    """Decide as `TargetPool.acquire` does."""
    tiers: dict[int, list[ProxyTargetState]] = {}
    for member in members.values():
        if not _refuses(member, seen.policy, now):
            tiers.setdefault(member.facts.tier, []).append(member)
    for tier in tiers.values():
        tier.sort(key=lambda member: (member.rank if member.queued else max(member.rank, seen.stands), member.key))
    places = {member.key: place for tier in tiers.values() for place, member in enumerate(tier, 1)}
    bound = members.get(seen.bound or "")
    if bound is not None and request.means(bound) and (bound.usable or bound.lease_count):
        drawn = frozenset({bound.key} & places.keys())
        return _Turn(seen, request, now, places, drawn, bound.facts.tier, bound.key)
    for number in sorted({member.facts.tier for member in members.values()}):
        tier = tiers.get(number, [])
        few = min(FEW, max(1, len(tier) // FEW_PART))
        fitting = [member for member in tier if request.fits(member)][:few]
        if fitting:
            return _Turn(seen, request, now, places, frozenset(member.key for member in fitting), number, None)
        if any(member.usable and member.facts.tier == number and request.fits(member) for member in members.values()):
            return _Turn(seen, request, now, places, frozenset(), number, None)
    return _Turn(seen, request, now, places, frozenset(), None, None)


def _refuses(member: ProxyTargetState, policy: TargetPolicy, now: float) -> bool:
    is_full = 0 < policy.concurrency <= member.lease_count
    return (
        member.banned
        or member.facts.dead
        or is_full
        or (member.half_open and member.lease_count > 0)
        or member.at > now
    )


def _refused(member: ProxyTargetState, seen: TargetSnapshot, now: float) -> tuple[Why, float]:
    """Say why a pair is in no line, the longest cause first."""
    deadline = (seen.deadlines or {}).get(member.key, 0.0)
    if member.facts.dead:
        return Why.DEAD, 0.0
    if member.banned:
        return Why.BANNED, 0.0
    if member.rests_until > now:
        return (Why.EXIT if member.reason.endswith(SAME_EXIT) else Why.COOLING), member.rests_until
    if member.lease_count and member.half_open:
        return Why.TRIED, deadline
    if 0 < seen.policy.concurrency <= member.lease_count:
        return Why.LEASED, deadline
    return Why.PACED, member.paced_until


def _filled(
    seen: TargetSnapshot, nearest: Sequence[tuple[str, ProxyFacts]], request: ProxyRequest, now: float
) -> tuple[dict[str, ProxyTargetState], set[str], list[tuple[str, ProxyFacts]]]:
    """Return the members after the target was filled up, which of them are new, and the others (`GlobalPool.acquire`)."""
    members, joining, spare = dict(seen.members), set[str](), []
    usable = sum(member.usable and request.means(member) for member in members.values())
    missing = 0 if seen.is_filled else seen.policy.members - usable
    for key, facts in nearest:
        if key in members:
            continue
        if facts.dead or missing <= 0 or not request.tags.items() <= facts.tags.items():
            spare.append((key, facts))
            continue
        joining.add(key)
        members[key] = member = ProxyTargetState(key, facts, seen.stands)
        if facts.rests_until > now:
            member.rest(facts.rests_until)
        at_its_exit = (each for each in seen.members.values() if facts.exit_ip and each.facts.exit_ip == facts.exit_ip)
        rest_with(member, at_its_exit, now)
        missing -= member.usable
    return members, joining, spare


def _spare(key: str, facts: ProxyFacts, request: ProxyRequest, now: float) -> ProxyVerdict:
    member = ProxyTargetState(key, facts, 0.0)
    if facts.rests_until > now:
        member.rest(facts.rests_until)
    why = Why.DEAD if facts.dead else Why.SPARE if request.tags.items() <= facts.tags.items() else Why.TAGS
    return ProxyVerdict(key, why, member.state(now), 0.0, 0, 1 / member.cost(), 0.0, facts.tier)


def _th(number: int) -> str:
    """Return "1st", "2nd", "11th"."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
