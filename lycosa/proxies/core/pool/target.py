"""The proxies of one target: lent with a token, returned with what came of it, resting after bans.

Every back end does as this machine does, and is compared with it. Time and chance are arguments: `now` in unix seconds,
`draw` from 0 to 1.
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
from lycosa.proxies.core.pool.order import UseOrder
from lycosa.proxies.core.pool.rate_guard import BAN_HOLD_S, DOWN_HOLD_S, RateGuard
from lycosa.proxies.core.pool.target_state import SAME_EXIT, ProxyFacts, ProxyState, ProxyTargetState, rest_with

DOWN_S = 10.0
"""A proxy that could not be reached rests so long here, at most; the global pool may say longer."""

DOWN_MAX_S = 60.0

NONE, NOBODY, SITE, PROXY, UNFIT = Blame.NONE, Blame.NOBODY, Blame.SITE, Blame.PROXY, Blame.UNFIT
"""Found in their class at each use they take as long as the rest of a verdict."""


@dataclass(frozen=True, slots=True)
class ProxyRequest:
    """What a lease asks for: proxies with these tags, the same one for the same `session`, a new one not of `avoid`."""

    tags: Mapping[str, str] = field(default_factory=dict)
    session: str = ""
    avoid: frozenset[str] = frozenset()
    kind: frozenset[tuple[str, str]] = field(init=False, compare=False, repr=False)
    """Which proxies are meant, whoever asks."""

    def __post_init__(self) -> None:
        """Work out the kind, which is asked for often."""
        object.__setattr__(self, "kind", frozenset(self.tags.items()))

    def means(self, member: ProxyTargetState) -> bool:
        """Whether the proxy of this pair has the tags."""
        return self.tags.items() <= member.facts.tags.items()

    def fits(self, member: ProxyTargetState) -> bool:
        """Whether this pair may be lent."""
        return member.key not in self.avoid and self.means(member)


ANY = ProxyRequest()


class Grant(NamedTuple):
    """A proxy, lent until `deadline`. `rebound`: its session had another one before.

    It was drawn among the first `among` in the order of use; 0: its session asked for it.
    """

    token: int
    key: str
    deadline: float
    rebound: bool
    among: int


class Wait(NamedTuple):
    """None can be lent. `at` is when to ask again at the latest, None when nothing that is known will change it."""

    at: float | None


class TargetPool:
    """See the module. `leaked` leases were not returned in time, `stale` returns came too late.

    `filled` are the kinds of wishes for which the global pool has nothing more to give.
    """

    def __init__(self, policy: TargetPolicy, first_token: int = 0) -> None:
        self.policy = policy
        self.members: dict[str, ProxyTargetState] = {}
        self.pace = RateGuard()
        self.leaked = self.stale = self.granted = 0
        self.filled: set[frozenset[tuple[str, str]]] = set()
        self._order = UseOrder()
        self._leases = LeaseTable(first_token)
        self._sessions = Sessions(policy.sticky_s)
        self._exits: dict[str, set[str]] = {}

    def learn(self, key: str, facts: ProxyFacts, now: float) -> None:
        """Take what the global pool knows of a proxy; one that is new here joins, and loses nothing it had before."""
        member = self.members.get(key)
        lost, exit_before = False, "" if member is None else member.facts.exit_ip
        if member is None:
            member = self.members[key] = ProxyTargetState(key, facts, self._order.stands)
        else:
            self._order.out(member)
            self._leave_exit(member)
            lost = facts.dead and member.usable
            member.half_open |= member.facts.dead and not facts.dead
            member.facts = facts
        if facts.exit_ip:
            self._exits.setdefault(facts.exit_ip, set()).add(key)
        if facts.exit_ip != exit_before:
            lost |= rest_with(member, (self.members[each] for each in self._exits.get(facts.exit_ip, ())), now)
        if facts.rests_until > max(now, member.rests_until):
            lost |= member.rest(facts.rests_until)
        self._lost([member] * lost, now, DOWN_HOLD_S)
        self._place(member, now)

    def forget(self, key: str) -> None:
        """A proxy left the global pool: its leases here are lost."""
        member = self.members.pop(key, None)
        if member is not None:
            self.filled.clear()
            self._order.out(member)
            self._leave_exit(member)
            self._leases.end_of(member)

    def acquire(
        self, now: float, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None
    ) -> list[Grant] | Wait:
        """Lend as many different proxies as there are draws, or none."""
        self.expire(now)
        self._wake(now)
        bound = self._bound(request.session, now) if request.session else None
        kept = bound if bound is not None and request.means(bound) else None
        if kept is not None and (kept.usable or kept.lease_count):
            chosen, rebound, among = ([kept] if kept.queued else []), False, 0
        else:
            (chosen, among), rebound = _chosen(self._order, self.members, draws, request), bound is not None
        if not chosen:
            return self._wait(now, kept)
        until = now + (self.policy.lease_s if lease_s is None else lease_s)
        return self._lend(chosen, now, until, request.session, rebound=rebound, among=among)

    def lend_again(self, keys: Sequence[str], now: float, until: float, session: str) -> list[Grant]:
        """Lend what `acquire` has chosen before, when this is played again."""
        self.expire(now)
        self._wake(now)
        return self._lend([self.members[key] for key in keys], now, until, session)

    def renew(self, token: int, now: float, lease_s: float | None = None) -> float | None:
        """Return the new deadline of a lease, None when it is over."""
        self.expire(now)
        until = now + (self.policy.lease_s if lease_s is None else lease_s)
        return until if self._leases.renew(token, until) else None

    def release(self, token: int, outcomes: Sequence[Outcome], now: float, draw: float) -> str | None:
        """End a lease with an outcome for each use. Return the key of its proxy, None when it was over before."""
        self.expire(now)
        held = self._leases.end(token)
        if held is None:
            self.stale += 1
            return None
        member = held.member
        self._order.out(member)
        member.lease_count -= 1
        member.uses += max(0, len(outcomes) - 1)
        for outcome in outcomes:
            self._judge(member, outcome, now, draw)
        if held.session and self._sessions.key(held.session, now) == member.key:
            self._sessions.bind(held.session, member.key, now)
        self._place(member, now)
        return member.key

    def expire(self, now: float) -> None:
        """Take back what was not returned in time."""
        for member in self._leases.overdue(now):
            self.leaked += 1
            self._order.out(member)
            member.lease_count -= 1
            self._place(member, now)

    def ban(self, key: str, now: float, until: float | None = None, reason: str = "by hand") -> bool:
        """Lend a proxy no more, or not before a time. False when it is not here."""
        member = self.members.get(key)
        if member is None:
            return False
        self._order.out(member)
        lost, member.reason = [member] if member.usable else [], reason
        if until is None:
            member.banned = True
        else:
            member.rest(until)
        self._lost(lost, now, BAN_HOLD_S)
        self._place(member, now)
        return True

    def unban(self, key: str, now: float) -> bool:
        """Lift bans and rests. False when it is not here."""
        member = self.members.get(key)
        if member is None:
            return False
        self._order.out(member)
        member.forgive()
        self._place(member, now)
        return True

    @property
    def leases(self) -> int:
        """How many are out, some of them perhaps overdue."""
        return len(self._leases)

    def leases_at(self, now: float) -> int:
        """Return how many are out now."""
        self.expire(now)
        return self.leases

    def usable(self) -> int:
        """Return how many proxies take part."""
        return sum(member.usable for member in self.members.values())

    def counts(self, now: float, request: ProxyRequest = ANY) -> Counter[ProxyState]:
        """Return how many of the proxies that may be meant are in each state."""
        self.expire(now)
        return Counter(member.state(now) for member in self.members.values() if request.fits(member))

    @property
    def stands(self) -> float:
        """The place of the order of use: the rank that was lent last."""
        return self._order.stands

    def deadlines(self) -> dict[str, float]:
        """Return, by the key of a proxy that is lent, when the first of its leases ends."""
        return self._leases.deadlines()

    def session_key(self, session: str, now: float) -> str | None:
        """Return the key of the proxy that a session has."""
        return self._sessions.key(session, now)

    def interval_s(self, now: float) -> float:
        """Return the least time between two leases of one proxy."""
        return max(self.policy.delay_s, self.pace.least_s(now))

    def _lend(
        self,
        members: Sequence[ProxyTargetState],
        now: float,
        until: float,
        session: str,
        *,
        rebound: bool = False,
        among: int = 0,
    ) -> list[Grant]:
        if self.pace.granted(now, len(members)):
            self.pace.measured(now, self.usable())
        least_s = self.interval_s(now)
        if session:
            self._sessions.bind(session, members[0].key, now)
        return [self._grant(member, now, least_s, until, session, rebound, among) for member in members]

    def _judge(self, member: ProxyTargetState, outcome: Outcome, now: float, draw: float) -> None:
        blame = outcome.blame
        member.took(outcome.latency_s)
        member.answered(None if blame is NOBODY else blame is NONE)
        if blame is NONE or blame is NOBODY:
            member.recover(now)
            return
        member.reason = outcome.reason
        if blame in (PROXY, UNFIT):
            self._lost([member] * member.rest(now + cool_s(DOWN_S, DOWN_MAX_S, 1, draw)), now, DOWN_HOLD_S)
            return
        member.misses += 1
        if blame is SITE or member.half_open or member.misses >= self.policy.misses_max:
            self._banned(member, outcome, now, draw)

    def _banned(self, member: ProxyTargetState, outcome: Outcome, now: float, draw: float) -> None:
        """It rests here, and with it all that leave by the same address."""
        policy = self.policy
        member.bans += 1
        member.misses = 0
        until = now + cool_s(policy.cool_s, policy.cool_max_s, member.bans, draw, outcome.rest_s)
        lost = [member] * member.rest(until)
        member.banned = 0 < policy.bans_max <= member.bans
        for key in self._exits.get(member.facts.exit_ip, ()):
            other = self.members[key]
            if other is not member:
                self._order.out(other)
                lost += [other] * other.rest(until)
                other.reason = outcome.reason + SAME_EXIT
                self._place(other, now)
        self._lost(lost, now, BAN_HOLD_S)

    def _lost(self, members: Sequence[ProxyTargetState], now: float, hold_s: float) -> None:
        """These take part no more; the load of those that have worked here would be that of the others now."""
        if members:
            self.filled.clear()
            if self.policy.guarded and any(member.has_worked for member in members):
                self.pace.lost(now, hold_s)

    def _place(self, member: ProxyTargetState, now: float) -> None:
        """Put a pair that is in no line into the one it belongs to, if to any."""
        room = not self.policy.concurrency or member.lease_count < self.policy.concurrency
        if member.banned or member.facts.dead or not room or (member.half_open and member.lease_count):
            return
        if member.at > now:
            self._order.wait(member, self.members)
        else:
            self._order.ready(member)

    def _wake(self, now: float) -> None:
        while (member := self._order.due(now, self.members)) is not None:
            self._place(member, now)

    def _grant(
        self,
        member: ProxyTargetState,
        now: float,
        least_s: float,
        until: float,
        session: str,
        rebound: bool,
        among: int,
    ) -> Grant:
        order = self._order
        order.out(member)
        order.stands = max(order.stands, member.rank)
        member.rank += member.cost()
        member.uses += 1
        member.lease_count += 1
        member.used_at = now
        member.paced_until = now + least_s
        self.granted += 1
        self._place(member, now)
        return Grant(self._leases.begin(member, until, session, now), member.key, until, rebound, among)

    def _wait(self, now: float, kept: ProxyTargetState | None) -> Wait:
        """Say when to ask again."""
        times = [self._order.next_at(self.members), self._leases.next_at()]
        if kept is not None and kept.at > now and not kept.lease_count:
            times = [kept.at]
        return Wait(min((each for each in times if each is not None), default=None))

    def _bound(self, session: str, now: float) -> ProxyTargetState | None:
        """Return the pair a session has, if it still has one."""
        key = self._sessions.key(session, now)
        return None if key is None else self.members.get(key)

    def parts(self) -> tuple[UseOrder, LeaseTable, Sessions]:
        """Return what it is made of, beside its public parts, for who keeps it elsewhere."""
        return self._order, self._leases, self._sessions

    def use(self, policy: TargetPolicy, now: float) -> None:
        """Use the proxies in another way from now on; leases and sessions that are under way stay as they are."""
        self.policy = policy
        self._sessions.sticky_s = policy.sticky_s
        self.filled.clear()  # it may have other members
        for member in self.members.values():
            self._order.out(member)
            self._place(member, now)

    def restore(self, members: Sequence[ProxyTargetState]) -> None:
        """Have the pairs that were kept; its parts are restored by themselves."""
        self.members = {member.key: member for member in members}
        for member in members:
            if member.facts.exit_ip:
                self._exits.setdefault(member.facts.exit_ip, set()).add(member.key)

    def _leave_exit(self, member: ProxyTargetState) -> None:
        if member.facts.exit_ip:
            self._exits[member.facts.exit_ip].discard(member.key)
            if not self._exits[member.facts.exit_ip]:
                del self._exits[member.facts.exit_ip]


def _chosen(
    order: UseOrder, members: Mapping[str, ProxyTargetState], draws: Sequence[float], request: ProxyRequest
) -> tuple[list[ProxyTargetState], int]:
    """Return as many ready pairs as there are draws, or none: of the cheapest tier that works.

    One that has too few for all gives those that are ready; the others come from the next.
    """
    asks = request.fits if request.avoid else request.means
    fits = asks if request.tags or request.avoid else None
    chosen: list[ProxyTargetState] = []
    for tier in order.tiers:
        few, missing = order.few(tier), draws[len(chosen) :]
        found = order.first(tier, len(missing) + few - 1, fits, members)
        if len(found) >= len(missing):
            return chosen + [found.pop(int(draw * min(few, len(found)))) for draw in missing], few
        if tier != order.tiers[-1] and _works(tier, members, request, len(missing)):
            break  # and is worth waiting for
        chosen += found
    return [], 0


def _works(tier: int, members: Mapping[str, ProxyTargetState], request: ProxyRequest, count: int) -> bool:
    """Whether so many of a tier take part."""
    its = (
        member for member in members.values() if member.facts.tier == tier and member.usable and request.fits(member)
    )
    return next(islice(its, count - 1, None), None) is not None
