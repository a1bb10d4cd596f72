"""The pool of one target: grants leases with a token, ends them with their outcomes, lets proxies cool down.

This is the reference for all back ends: tests compare their results with it. `now`: unix seconds; `draw`: a
random number from 0 to 1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.backoff import cool_s
from lycosa.proxies.core.pool.leases import LeaseTable, Sessions
from lycosa.proxies.core.pool.order import UseOrder, preferred
from lycosa.proxies.core.pool.rate_guard import BAN_HOLD_S, DOWN_HOLD_S, RateGuard
from lycosa.proxies.core.pool.target_state import SAME_EXIT, ProxyFacts, ProxyState, ProxyTargetState, cool_down_like

DOWN_S = 10.0
DOWN_MAX_S = 60.0
"""An unreachable or unfit proxy cools down on this target for a random time up to DOWN_S, however often it fails.
`cool_s` needs a DOWN_MAX_S, but it has no effect here. The global pool may set a longer cool-down."""

NONE, NOBODY, SITE, PROXY, UNFIT = Blame.NONE, Blame.NOBODY, Blame.SITE, Blame.PROXY, Blame.UNFIT
"""Names for speed: enum look-ups would double the time of `_record`."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """A request for proxies with all of these `tags`.

    A `session` keeps its proxy. Proxies whose keys are in `avoid` are excluded, except the proxy bound to the session.
    """

    tags: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    avoid: frozenset[str] = frozenset()
    kind: frozenset[tuple[str, str]] = field(init=False, compare=False, repr=False)
    """The tags in a hashable form, for `TargetPool.filled`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "kind", frozenset(self.tags.items()))

    def has_tags(self, member: ProxyTargetState) -> bool:
        return self.tags.items() <= member.facts.tags.items()

    def fits(self, member: ProxyTargetState) -> bool:
        return member.key not in self.avoid and self.has_tags(member)


ANY = ProxyRequest()


class Grant(NamedTuple):
    """A new lease. `rebound`, `drawn_from`: as in `ProxyLease`."""

    token: int
    key: str
    deadline: float
    rebound: bool
    drawn_from: int


class Wait(NamedTuple):
    """No proxy is free. `at`: when to try again if no lease is released before; None if no event will free a proxy."""

    at: float | None


class TargetPool:
    """The pool of one target. `leaked`: number of leases that expired. `stale`: number of late releases.

    `filled`: the kinds of requests for which no further proxies need to join.
    """

    def __init__(self, policy: TargetPolicy, first_token: int = 0) -> None:
        self.policy = policy
        self.members: dict[str, ProxyTargetState] = {}
        self.guard = RateGuard()
        self.leaked = self.stale = self.granted = 0
        self.filled: set[frozenset[tuple[str, str]]] = set()
        self._order = UseOrder()
        self._leases = LeaseTable(first_token)
        self._sessions = Sessions(policy.sticky_s)
        self._exits: dict[str, set[str]] = {}

    def learn(self, key: str, facts: ProxyFacts, now: float) -> None:
        """Update the facts about a proxy that hold for all targets. A new proxy becomes a member."""
        member = self.members.get(key)
        lost, exit_before = False, "" if member is None else member.facts.exit_ip
        if member is None:
            member = self.members[key] = ProxyTargetState(key, facts, self._order.virtual_time)
        else:
            self._order.remove(member)  # its tier and its eligible time may change
            self._leave_exit(member)
            lost = facts.dead and member.usable
            member.half_open |= member.facts.dead and not facts.dead  # revived: on trial first
            member.facts = facts
        if facts.exit_ip:
            self._exits.setdefault(facts.exit_ip, set()).add(key)
        if facts.exit_ip != exit_before:
            lost |= cool_down_like(member, (self.members[each] for each in self._exits.get(facts.exit_ip, ())), now)
        if facts.rests_until > max(now, member.rests_until):
            lost |= member.cool_down(facts.rests_until)
        self._note_lost([member] * lost, now, DOWN_HOLD_S)
        self._place(member, now)

    def forget(self, key: str) -> None:
        """Remove a proxy and its leases."""
        member = self.members.pop(key, None)
        if member is not None:
            self.filled.clear()
            self._order.remove(member)
            self._leave_exit(member)
            self._leases.end_all_of(key)

    def acquire(
        self, now: float, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None
    ) -> list[Grant] | Wait:
        """Lease one proxy per draw, or none at all."""
        self.expire(now)
        self.promote_due(now)
        bound = self._bound(request.session, now) if request.session else None
        kept = bound if bound is not None and request.has_tags(bound) else None
        if kept is not None and (kept.usable or kept.lease_count):
            chosen, rebound, drawn_from = ([kept] if kept.queued else []), False, 0
        else:
            (chosen, drawn_from), rebound = _choose(self._order, self.members, draws, request), bound is not None
        if not chosen:
            return self._wait(now, kept)
        until = now + (self.policy.lease_s if lease_s is None else lease_s)
        return self._lease(chosen, now, until, request.session, rebound=rebound, drawn_from=drawn_from)

    def replay_acquire(self, keys: Sequence[str], now: float, until: float, session: str) -> list[Grant]:
        """Lease the proxies that an earlier `acquire` chose. The journal has their keys."""
        self.expire(now)
        self.promote_due(now)
        return self._lease([self.members[key] for key in keys], now, until, session)

    def renew(self, token: int, now: float, lease_s: float | None = None) -> float | None:
        self.expire(now)
        until = now + (self.policy.lease_s if lease_s is None else lease_s)
        return until if self._leases.renew(token, until) else None

    def release(self, token: int, outcomes: Sequence[Outcome], now: float, draw: float) -> str | None:
        """End a lease, with one outcome per use. Return the key of its proxy; None if it had ended before."""
        self.expire(now)
        lease = self._leases.end(token)
        if lease is None:
            self.stale += 1
            return None
        member = self.members[lease.key]
        self._order.remove(member)
        member.lease_count -= 1
        member.uses += max(0, len(outcomes) - 1)  # the first use was counted when the lease started
        for outcome in outcomes:
            self._record(member, outcome, now, draw)
        if lease.session and self._sessions.key(lease.session, now) == member.key:
            self._sessions.bind(lease.session, member.key, now)
        self._place(member, now)
        return member.key

    def expire(self, now: float) -> None:
        for key in self._leases.pop_overdue(now):
            member = self.members[key]
            self.leaked += 1
            self._order.remove(member)
            member.lease_count -= 1
            self._place(member, now)

    def ban(self, key: str, now: float, until: float | None = None, reason: str = "by hand") -> bool:
        """Ban a proxy, for good if `until` is None. Return False if it is not a member."""
        member = self.members.get(key)
        if member is None:
            return False
        self._order.remove(member)
        lost, member.reason = [member] if member.usable else [], reason
        if until is None:
            member.banned = True
        else:
            member.cool_down(until)
        self._note_lost(lost, now, BAN_HOLD_S)
        self._place(member, now)
        return True

    def unban(self, key: str, now: float) -> bool:
        member = self.members.get(key)
        if member is None:
            return False
        self._order.remove(member)
        member.clear_bans()
        self._place(member, now)
        return True

    @property
    def leases(self) -> int:
        """Includes overdue leases that have not been ended yet."""
        return len(self._leases)

    def leases_at(self, now: float) -> int:
        self.expire(now)
        return self.leases

    def usable(self) -> int:
        return sum(member.usable for member in self.members.values())

    def counts(self, now: float, request: ProxyRequest = ANY) -> Counter[ProxyState]:
        self.expire(now)
        return Counter(member.state(now) for member in self.members.values() if request.fits(member))

    @property
    def virtual_time(self) -> float:
        return self._order.virtual_time

    def deadlines(self) -> dict[str, float]:
        return self._leases.deadlines()

    def session_key(self, session: str, now: float) -> str | None:
        return self._sessions.key(session, now)

    def interval_s(self, now: float) -> float:
        return max(self.policy.delay_s, self.guard.interval_s(now))

    def parts(self) -> tuple[UseOrder, LeaseTable, Sessions]:
        """The internal state, for a store."""
        return self._order, self._leases, self._sessions

    def set_policy(self, policy: TargetPolicy, now: float) -> None:
        """Existing leases and sessions stay as they are."""
        self.policy = policy
        self._sessions.sticky_s = policy.sticky_s
        self.filled.clear()  # the new policy may require more members
        for member in self.members.values():
            self._order.remove(member)
            self._place(member, now)

    def restore(self, members: Sequence[ProxyTargetState]) -> None:
        """Restore the members; `parts` are restored separately."""
        self.members = {member.key: member for member in members}
        for member in members:
            if member.facts.exit_ip:
                self._exits.setdefault(member.facts.exit_ip, set()).add(member.key)

    def _lease(
        self,
        chosen: Sequence[ProxyTargetState],
        now: float,
        until: float,
        session: str,
        *,
        rebound: bool = False,
        drawn_from: int = 0,
    ) -> list[Grant]:
        if self.guard.count_leases(now, len(chosen)):  # once per window, because `usable` is slow
            self.guard.end_window(now, self.usable())
        interval_s = self.interval_s(now)
        if session:
            self._sessions.bind(session, chosen[0].key, now)
        grants = []
        for member in chosen:
            self._use(member, now, interval_s)
            token = self._leases.start(member.key, until, session, now)
            grants.append(Grant(token, member.key, until, rebound, drawn_from))
        return grants

    def _use(self, member: ProxyTargetState, now: float, interval_s: float) -> None:
        order = self._order
        order.remove(member)
        order.virtual_time = max(order.virtual_time, member.rank)
        member.rank += member.cost()
        member.uses += 1
        member.lease_count += 1
        member.used_at = now
        member.paced_until = now + interval_s
        self.granted += 1
        self._place(member, now)

    def _record(self, member: ProxyTargetState, outcome: Outcome, now: float, draw: float) -> None:
        blame = outcome.blame
        member.count_latency(outcome.latency_s)
        member.count_response(None if blame is NOBODY else blame is NONE)
        if blame is NONE or blame is NOBODY:
            member.recover(now)
            return
        member.reason = outcome.reason
        if blame in (PROXY, UNFIT):
            was_usable = member.cool_down(now + cool_s(DOWN_S, DOWN_MAX_S, 1, draw))
            self._note_lost([member] * was_usable, now, DOWN_HOLD_S)
            return
        member.misses += 1
        if blame is SITE or member.half_open or member.misses >= self.policy.max_misses:
            self._count_ban(member, outcome, now, draw)

    def _count_ban(self, member: ProxyTargetState, outcome: Outcome, now: float, draw: float) -> None:
        """Let a proxy cool down, together with all proxies at its exit address."""
        policy = self.policy
        member.bans += 1
        member.misses = 0
        until = now + cool_s(policy.cool_s, policy.max_cool_s, member.bans, draw, outcome.rest_s)
        lost = [member] * member.cool_down(until)
        member.banned = 0 < policy.max_bans <= member.bans
        for key in self._exits.get(member.facts.exit_ip, ()):
            other = self.members[key]
            if other is not member:
                self._order.remove(other)
                lost += [other] * other.cool_down(until)
                other.reason = outcome.reason + SAME_EXIT
                self._place(other, now)
        self._note_lost(lost, now, BAN_HOLD_S)

    def _note_lost(self, lost: Sequence[ProxyTargetState], now: float, hold_s: float) -> None:
        """Let the next lease refill this pool if any proxy was lost.

        If a lost proxy had worked here, also limit the rate of the others, so that they do not take over its load.
        """
        if lost:
            self.filled.clear()
            if self.policy.guarded and any(member.has_worked for member in lost):
                self.guard.proxy_lost(now, hold_s)

    def _place(self, member: ProxyTargetState, now: float) -> None:
        """Make a member ready, or waiting if it becomes eligible later, or neither if it cannot be leased."""
        has_room = not self.policy.concurrency or member.lease_count < self.policy.concurrency
        on_trial = member.half_open and member.lease_count
        if member.banned or member.facts.dead or not has_room or on_trial:
            return
        if member.eligible_at > now:
            self._order.add_waiting(member, self.members)
        else:
            self._order.add_ready(member)

    def promote_due(self, now: float) -> None:
        while (member := self._order.pop_due(now, self.members)) is not None:
            self._place(member, now)

    def _wait(self, now: float, kept: ProxyTargetState | None) -> Wait:
        times = [self._order.next_at(self.members), self._leases.next_deadline()]
        if kept is not None and kept.eligible_at > now and not kept.lease_count:
            times = [kept.eligible_at]  # the session takes no other proxy meanwhile
        return Wait(min((each for each in times if each is not None), default=None))

    def _bound(self, session: str, now: float) -> ProxyTargetState | None:
        key = self._sessions.key(session, now)
        return None if key is None else self.members.get(key)

    def _leave_exit(self, member: ProxyTargetState) -> None:
        if member.facts.exit_ip:
            self._exits[member.facts.exit_ip].discard(member.key)
            if not self._exits[member.facts.exit_ip]:
                del self._exits[member.facts.exit_ip]


def _choose(
    order: UseOrder, members: Mapping[str, ProxyTargetState], draws: Sequence[float], request: ProxyRequest
) -> tuple[list[ProxyTargetState], int]:
    """Return one ready member for each draw, or none at all, and the maximum number of members to draw each from.

    The cheapest tier comes first. If it has enough usable members, but too few of them are ready, the request waits. If
    it has too few usable members, it supplies those that are ready, and the next tier supplies the others.
    """
    accepts = request.fits if request.avoid else request.has_tags
    fits = accepts if request.tags or request.avoid else None
    chosen: list[ProxyTargetState] = []
    for tier in order.tiers:
        draw_size, missing = order.draw_size(tier), draws[len(chosen) :]
        found = order.first(tier, len(missing) + draw_size - 1, fits, members)
        if len(found) >= len(missing):
            return chosen + [found.pop(int(draw * min(draw_size, preferred(found)))) for draw in missing], draw_size
        if tier != order.tiers[-1] and has_usable(tier, members, request, len(missing)):
            break  # wait for this tier rather than pay for the next one
        chosen += found
    return [], 0


def has_usable(tier: int, members: Mapping[str, ProxyTargetState], request: ProxyRequest, count: int) -> bool:
    """Return whether a tier has at least `count` usable proxies that fit."""
    usable = (each for each in members.values() if each.facts.tier == tier and each.usable and request.fits(each))
    return next(islice(usable, count - 1, None), None) is not None
