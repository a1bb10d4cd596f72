"""Why each proxy would be leased for a target now, or why not.

    why         meaning                                                             until
    ---         ---------------------------------------------------------------     -------------------------------
    NEXT        one of the proxies from which the next lease is drawn
    BEHIND      ready, but others come first in the order of use
    DEARER      ready, but the request waits for a cheaper tier, which has usable proxies
    SESSION     ready, but the session is bound to another proxy
    PACED       leased a moment ago; the delay or the rate guard applies                the end of the delay
    LEASED      leased                                                              the deadline of its lease
    TRIED       on trial after a cool-down: its one lease is active                 the deadline of that lease
    COOLING     banned on this target for a time, or unreachable                    the end of its cool-down
    EXIT        a proxy with the same exit address was banned on this target        the end of its cool-down
    BANNED      banned until someone lifts the ban
    DEAD        unreachable or unfit, until a check finds it working
    AVOIDED     excluded by the request
    TAGS        lacks tags that the request asks for
    SPARE       not a member of this target; it joins when more are needed

Proxies that would join the target with the next lease are explained like members. Explaining changes nothing. The
verdicts hold until the pool is used again, or the time of an `until` has come.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.order import preferred
from lycosa.proxies.core.pool.pool import GlobalPool
from lycosa.proxies.core.pool.target import ProxyRequest, TargetPool, has_usable
from lycosa.proxies.core.pool.target_state import SAME_EXIT, ProxyFacts, ProxyState, ProxyTargetState

NEAREST_MAX = 1_000
"""`explain` looks for new members among this many proxies of the global pool, those with the lowest latency."""


class Why(StrEnum):
    """The verdicts, in sort order."""

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


SORT_ORDER = {why: number for number, why in enumerate(Why)}
ELIGIBLE = frozenset({Why.NEXT, Why.BEHIND, Why.DEARER, Why.SESSION})


class ProxyVerdict(NamedTuple):
    """The verdict on one proxy. `until`: unix seconds, 0.0 for none.

    `place`: its place among the ready proxies of its tier, from 1; 0 if it is not ready. `weight`: how often it is used
    compared with a proxy that always responds instantly, 0 to 1. `share`: the probability that it gets the next lease.
    `reason`: why it was last banned or failed. `joins`: it becomes a member with the next lease.
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
    """A target at one moment, from any back end.

    `deadlines`: the earliest lease deadline by proxy key. `bound`: the key of the proxy bound to the request's session.
    `is_filled`: no proxies would join with the next lease.
    """

    policy: TargetPolicy
    members: Mapping[str, ProxyTargetState]
    virtual_time: float = 0.0
    deadlines: Mapping[str, float] | None = None
    bound: str | None = None
    interval_s: float = 0.0
    is_filled: bool = False


def explain(
    snapshot: TargetSnapshot, nearest: Sequence[tuple[str, ProxyFacts]], request: ProxyRequest, now: float
) -> list[ProxyVerdict]:
    """Return verdicts, leasable proxies first. `nearest`: proxies of the global pool, by latency."""
    target = _copy_of(snapshot, now)
    joining, spare = _fill(target, snapshot, nearest, request, now)
    draw = _draw(target, snapshot, request, now)
    verdicts = [draw.verdict(member, joins=member.key in joining) for member in target.members.values()]
    verdicts += [_spare_verdict(key, facts, request, now) for key, facts in spare]
    return sorted(verdicts, key=lambda each: (SORT_ORDER[each.why], each.tier, each.place, each.until, each.key))


def explain_pool(pool: GlobalPool, target: str, request: ProxyRequest, now: float) -> list[ProxyVerdict]:
    """Return the verdicts for a pool in memory. An unknown target is not added to the pool."""
    found = pool.targets.get(target) or TargetPool(pool.policy_of(target))
    found.expire(now)
    bound = found.session_key(request.session, now) if request.session else None
    is_filled = request.kind in found.filled
    snapshot = TargetSnapshot(
        found.policy, found.members, found.virtual_time, found.deadlines(), bound, found.interval_s(now), is_filled
    )
    nearest = [(key, pool.facts(key)) for key, _ in zip(pool.nearest(), range(NEAREST_MAX), strict=False)]
    return explain(snapshot, nearest, request, now)


def lacks_reason(verdict: ProxyVerdict) -> bool:
    """Return whether a verdict lacks its reason: only the global pool knows the reasons that affect all targets."""
    return verdict.why is Why.DEAD or (verdict.why is Why.COOLING and not verdict.reason)


def with_reason(verdict: ProxyVerdict, reasons: Mapping[str, str]) -> ProxyVerdict:
    """Add a missing reason from `reasons`, which are by proxy key."""
    return verdict._replace(reason=reasons.get(verdict.key, "")) if lacks_reason(verdict) else verdict


def verdict_text(verdict: ProxyVerdict, format_time: Callable[[float], str], *, tags: str = "") -> str:
    """Return a verdict in words. `tags`: the request's tags, as text."""
    until = format_time(verdict.until) if verdict.until else ""
    place, because = _ordinal(verdict.place), f" ({verdict.reason})" if verdict.reason else ""
    text = {
        Why.NEXT: f"may be leased next ({verdict.share:.0%} chance)",
        Why.BEHIND: f"ready, {place} in the order of use",
        Why.DEARER: "ready, but a cheaper proxy is usable",
        Why.SESSION: "ready, but the session is bound to another proxy",
        Why.PACED: f"was leased a moment ago: available again {until}",
        Why.LEASED: f"leased: its lease ends {until}",
        Why.TRIED: f"on trial after a cool-down: its lease ends {until}",
        Why.COOLING: f"cools down until {until}{because}",
        Why.EXIT: f"cools down until {until}: {verdict.reason}",
        Why.BANNED: f"banned until someone lifts the ban{because}",
        Why.DEAD: f"dead until a check finds it working{because}",
        Why.AVOIDED: "excluded by the request",
        Why.TAGS: f"lacks the requested tags{f' ({tags})' if tags else ''}",
        Why.SPARE: "not in the pool of this target: it joins when more are needed",
    }[verdict.why]
    trial = ", on trial after a cool-down" if verdict.state is ProxyState.HALF_OPEN and verdict.why in ELIGIBLE else ""
    return text + trial + (", joins with the next lease" if verdict.joins and verdict.why in ELIGIBLE else "")


# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Draw:
    """The draw of the next proxy. `places`: place of each ready proxy in the order of use, by key.

    `drawn`: keys of the proxies to draw from, all in `tier`. `bound`: key of the proxy bound to the session.
    """

    snapshot: TargetSnapshot
    request: ProxyRequest
    now: float
    places: Mapping[str, int]
    drawn: frozenset[str]
    tier: int | None
    bound: str | None

    def verdict(self, member: ProxyTargetState, *, joins: bool) -> ProxyVerdict:
        why, until = self._why(member)
        share = 1 / len(self.drawn) if why is Why.NEXT else 0.0
        place = self.places.get(member.key, 0) if why in ELIGIBLE else 0
        state, tier = member.state(self.now), member.facts.tier
        return ProxyVerdict(member.key, why, state, until, place, 1 / member.cost(), share, tier, member.reason, joins)

    def _why(self, member: ProxyTargetState) -> tuple[Why, float]:
        if not self.request.fits(member) and member.key != self.bound:  # a session keeps even an avoided proxy
            return (Why.AVOIDED if self.request.has_tags(member) else Why.TAGS), 0.0
        if member.key not in self.places:
            return _obstacle(member, self.snapshot, self.now)
        if member.key in self.drawn:
            return Why.NEXT, 0.0
        if self.bound is not None:
            return Why.SESSION, 0.0
        is_dearer = self.tier is not None and member.facts.tier > self.tier
        return (Why.DEARER if is_dearer else Why.BEHIND), 0.0


def _copy_of(snapshot: TargetSnapshot, now: float) -> TargetPool:
    target = TargetPool(snapshot.policy)
    target.restore([replace(member) for member in snapshot.members.values()])
    tiers = {member.facts.tier for member in target.members.values()}
    target.parts()[0].restore(snapshot.virtual_time, tiers, target.members)
    target.promote_due(now)
    return target


def _fill(
    target: TargetPool,
    snapshot: TargetSnapshot,
    nearest: Sequence[tuple[str, ProxyFacts]],
    request: ProxyRequest,
    now: float,
) -> tuple[set[str], list[tuple[str, ProxyFacts]]]:
    """Let proxies join as in `GlobalPool.acquire`. Return their keys, and the proxies that did not join."""
    joining, spare = set[str](), []
    usable = sum(member.usable and request.has_tags(member) for member in target.members.values())
    missing = 0 if snapshot.is_filled else snapshot.policy.members - usable
    for key, facts in nearest:
        if key in target.members:
            continue
        if facts.dead or missing <= 0 or not request.tags.items() <= facts.tags.items():
            spare.append((key, facts))
            continue
        joining.add(key)
        target.learn(key, facts, now)
        missing -= target.members[key].usable
    return joining, spare


def _draw(target: TargetPool, snapshot: TargetSnapshot, request: ProxyRequest, now: float) -> _Draw:
    members, order = target.members, target.parts()[0]
    ready = {tier: order.first(tier, len(members), None, members) for tier in order.tiers}
    places = {member.key: place for tier in ready.values() for place, member in enumerate(tier, 1)}
    bound = members.get(snapshot.bound or "")
    if bound is not None and request.has_tags(bound) and (bound.usable or bound.lease_count):
        drawn = frozenset({bound.key} & places.keys())
        return _Draw(snapshot, request, now, places, drawn, bound.facts.tier, bound.key)
    for tier in order.tiers:
        first = order.first(tier, order.draw_size(tier), request.fits, members)
        drawn = frozenset(each.key for each in first[: preferred(first)])
        if drawn or has_usable(tier, members, request, 1):
            return _Draw(snapshot, request, now, places, drawn, tier, None)
    return _Draw(snapshot, request, now, places, frozenset(), None, None)


def _obstacle(member: ProxyTargetState, snapshot: TargetSnapshot, now: float) -> tuple[Why, float]:
    """Return what prevents a lease. Of several obstacles, return the one that usually lasts longest."""
    deadline = (snapshot.deadlines or {}).get(member.key, 0.0)
    if member.facts.dead:
        return Why.DEAD, 0.0
    if member.banned:
        return Why.BANNED, 0.0
    if member.rests_until > now:
        return (Why.EXIT if member.reason.endswith(SAME_EXIT) else Why.COOLING), member.rests_until
    if member.lease_count and member.half_open:
        return Why.TRIED, deadline
    if 0 < snapshot.policy.concurrency <= member.lease_count:
        return Why.LEASED, deadline
    return Why.PACED, member.paced_until


def _spare_verdict(key: str, facts: ProxyFacts, request: ProxyRequest, now: float) -> ProxyVerdict:
    member = ProxyTargetState(key, facts, 0.0)
    if facts.rests_until > now:
        member.cool_down(facts.rests_until)
    why = Why.DEAD if facts.dead else Why.SPARE if request.has_tags(member) else Why.TAGS
    return ProxyVerdict(key, why, member.state(now), 0.0, 0, 1 / member.cost(), 0.0, facts.tier)


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number:,}{ending}"
