"""The two levels: one pool of all proxies, ordered by latency, and one for each target, filled up from it.

A proxy may be lent to many targets at once; what one target makes of it stays there, but for one thing: whether it can
be reached at all, which all of them hear.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import filterfalse, islice

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.health import UNCHECKED, ProxyHealth, proves_reached
from lycosa.proxies.core.pool.nearest import LatencyIndex
from lycosa.proxies.core.pool.target import ANY, Grant, ProxyRequest, TargetPool, Wait
from lycosa.proxies.core.pool.target_state import ProxyFacts
from lycosa.proxies.core.proxy import Proxy

TARGETS_MAX = 10_000
"""Targets that are remembered; the one without leases that was used longest ago is forgotten."""

PROXIES_MAX = 1_000_000
FORGOTTEN_MAX = 500
"""Dead proxies that are forgotten at once: nothing else happens meanwhile."""
PRICES_MAX = 1_000
"""Different prices; what costs something else beyond that counts as what costs a little more."""

KINDS_MAX = 1_000
"""Different wishes of a target that are known to be filled up."""

ROTATING, NO = "rotating", "no"
"""A proxy with this tag comes out at another address each time, unless that says no: nobody shares its bans."""


class GlobalPool:
    """Proxies, their health, and the pools of targets. `policy_of(target)` says how a target's proxies are used.

    `token` is the last one of a target that was forgotten. `reached_at`: when any proxy was reached last.
    """

    def __init__(self, policy_of: Callable[[str], TargetPolicy]) -> None:
        self.proxies: dict[str, Proxy] = {}
        self.health: dict[str, ProxyHealth] = {}
        self.targets: OrderedDict[str, TargetPool] = OrderedDict()
        self.policy_of = policy_of
        self.token = 0
        self.reached_at = 0.0
        self._nearest = LatencyIndex()
        self._prices: list[tuple[float, float]] = []

    def add(self, proxies: Iterable[Proxy], now: float, *, unchecked: bool = False) -> int:
        """Take proxies in; what is known of those that are here already stays. Return how many are new.

        New ones that are `unchecked` are dead until a check finds them well.
        """
        before = len(self.proxies)
        prices = len(self._prices)
        changed = []
        for proxy in proxies:
            if proxy.key not in self.health:
                if len(self.proxies) >= PROXIES_MAX:
                    continue
                self.health[proxy.key] = (
                    ProxyHealth(dead=True, dead_at=now, reason=UNCHECKED) if unchecked else ProxyHealth()
                )
                self._nearest.add(self.health[proxy.key].order(), proxy.key)
            elif _told(proxy) != _told(self.proxies[proxy.key]):
                changed.append(proxy.key)
            self.proxies[proxy.key] = proxy
            self._know_price((proxy.price_gb, proxy.price_request))
        for pool in self.targets.values():
            pool.filled.clear()
        self._tell(changed if len(self._prices) == prices else self.proxies, now)
        return len(self.proxies) - before

    def remove(self, key: str, now: float) -> bool:
        """Forget a proxy. False when it is not here."""
        return bool(self.remove_all([key], now))

    def remove_all(self, keys: Iterable[str], now: float) -> list[str]:
        """Forget proxies. Return the keys of those that were here."""
        gone = [key for key in dict.fromkeys(keys) if key in self.proxies]
        for key in gone:
            del self.proxies[key]
            self._nearest.remove(self.health.pop(key).order(), key)
        for target, theirs in self._who_has(gone):
            target.expire(now)
            for key in theirs:
                target.forget(key)
        return gone

    def forget_dead(self, kept_s: float, now: float) -> list[str]:
        """Forget proxies that are dead for so long, FORGOTTEN_MAX at most, but none that is lent. Return their keys."""
        lent: set[str] = set()
        for target in self.targets.values():
            target.expire(now)
            lent.update(target.deadlines())
        over = (key for key, health in self.health.items() if health.dead_for_s(now) >= kept_s)
        return self.remove_all(islice(filterfalse(lent.__contains__, over), FORGOTTEN_MAX), now)

    def acquire(
        self, target: str, now: float, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None
    ) -> list[Grant] | Wait:
        """Lend as many proxies as there are draws for a target, or none."""
        pool = self.target(target, now)
        if request.kind not in pool.filled:
            self._fill(pool, now, request)
        return pool.acquire(now, draws, request, lease_s)

    def renew(self, target: str, token: int, now: float, lease_s: float | None = None) -> float | None:
        """Return the new deadline of a lease, None when it is over."""
        pool = self.targets.get(target)
        return None if pool is None else pool.renew(token, now, lease_s)

    def release(self, target: str, token: int, outcomes: Sequence[Outcome], now: float, draw: float) -> str | None:
        """End a lease. Return the key of its proxy, None when it was over before."""
        pool = self.targets.get(target)
        key = None if pool is None else pool.release(token, outcomes, now, draw)
        if key is not None:
            self.hear(key, outcomes, now, draw)
        return key

    def hear(self, key: str, outcomes: Sequence[Outcome], now: float, draw: float) -> None:
        """Take what uses say of the proxy as such, and tell it to all targets if they have to know.

        What they say of the others they say of a proxy that is not here, too: that one was reached.
        """
        if any(map(proves_reached, outcomes)):
            self.reached_at = now
        health = self.health.get(key)
        if health is None:
            return
        before, tell = health.order(), False
        for outcome in outcomes:
            tell |= health.hear(outcome, now, draw, self.reached_at)
        if health.order() != before:
            self._nearest.remove(before, key)
            self._nearest.add(health.order(), key)
        if tell:
            self._tell([key], now)

    def ban(self, target: str, key: str, now: float, until: float | None = None, reason: str = "by hand") -> bool:
        """Lend a proxy no more for a target, or not before a time. False when there is no such proxy."""
        return key in self.proxies and self._has(target, key, now).ban(key, now, until, reason)

    def unban(self, target: str, key: str, now: float) -> bool:
        """Lift bans and rests of a proxy for a target. False when there is no such proxy."""
        return key in self.proxies and self._has(target, key, now).unban(key, now)

    def revive(self, key: str, now: float, exit_ip: str = "") -> None:
        """A check has found a proxy well, and where it comes out."""
        health, proxy = self.health[key], self.proxies[key]
        for pool in self.targets.values() if health.dead else ():
            pool.filled.clear()  # those that do not have it may take it in
        health.revive(now)
        health.exit_ip = exit_ip if proxy.tags.get(ROTATING, NO) == NO else ""
        self._tell([key], now)

    def target(self, name: str, now: float) -> TargetPool:
        """Return the pool of a target, a new one if need be."""
        pool = self.targets.get(name)
        if pool is None:
            self._forget_a_target(now)
            pool = self.begin(name, self.policy_of(name))
        self.targets.move_to_end(name)
        return pool

    def begin(self, name: str, policy: TargetPolicy) -> TargetPool:
        """Return the new pool of a target. Its tokens are none that a target had which was forgotten."""
        pool = self.targets[name] = TargetPool(policy, self.token)
        return pool

    def forget(self, name: str) -> None:
        """Forget a target."""
        self.token = max(self.token, self.targets.pop(name).parts()[1].token)

    def restore(
        self, proxies: Iterable[Proxy], health: Iterable[ProxyHealth], prices: Iterable[tuple[float, float]]
    ) -> None:
        """Have the proxies that were kept, with what was known of them."""
        self._prices = list(prices)
        for proxy, known in zip(proxies, health, strict=True):
            self.proxies[proxy.key], self.health[proxy.key] = proxy, known
            self._nearest.add(known.order(), proxy.key)

    def kept_prices(self) -> list[tuple[float, float]]:
        """Return what `restore` has to know of prices: all that were ever seen, in order."""
        return list(self._prices)

    def nearest(self) -> Iterator[str]:
        """Yield the keys of all proxies, the one with the least latency first."""
        return iter(self._nearest)

    def facts(self, key: str) -> ProxyFacts:
        """Return what targets know of a proxy."""
        proxy = self.proxies[key]
        place = bisect_left(self._prices, (proxy.price_gb, proxy.price_request))
        return self.health[key].facts(min(place, len(self._prices) - 1), proxy.tags)

    def _know_price(self, price: tuple[float, float]) -> None:
        place = bisect_left(self._prices, price)
        if self._prices[place : place + 1] != [price] and len(self._prices) < PRICES_MAX:
            self._prices.insert(place, price)

    def _fill(self, pool: TargetPool, now: float, request: ProxyRequest) -> None:
        """Let a target have as many proxies that fit as its policy says, the nearest first; those that rest beside."""
        missing = pool.policy.members - sum(member.usable and request.means(member) for member in pool.members.values())
        for key in self._others(pool, request) if missing > 0 else ():
            pool.learn(key, self.facts(key), now)
            missing -= pool.members[key].usable
            if missing <= 0:
                break
        note_filled(pool, request.kind)

    def _has(self, target: str, key: str, now: float) -> TargetPool:
        """Return the pool of a target, which has this proxy now."""
        pool = self.target(target, now)
        if key not in pool.members:
            pool.learn(key, self.facts(key), now)
        return pool

    def _others(self, pool: TargetPool, request: ProxyRequest) -> Iterator[str]:
        """Yield living proxies that fit and the target does not have yet, the nearest first."""
        for key in self.nearest():
            if (
                key not in pool.members
                and not self.health[key].dead
                and request.tags.items() <= self.proxies[key].tags.items()
            ):
                yield key

    def _tell(self, keys: Iterable[str], now: float) -> None:
        """All targets that have these proxies hear of them."""
        told: dict[str, ProxyFacts] = {}
        for pool, theirs in self._who_has(keys):
            for key in theirs:
                if key not in told:
                    told[key] = self.facts(key)
                pool.learn(key, told[key], now)

    def _who_has(self, keys: Iterable[str]) -> Iterator[tuple[TargetPool, list[str]]]:
        """Yield the targets that have some of these proxies, and which. The fewer ones are looked for in the others."""
        known = dict.fromkeys(keys)
        if len(known) == 1:  # as nearly always
            key, *_ = known
            yield from ((pool, [key]) for pool in self.targets.values() if key in pool.members)
            return
        for pool in self.targets.values() if known else ():
            few, many = (known, pool.members) if len(known) < len(pool.members) else (pool.members, known)
            if theirs := [key for key in few if key in many]:
                yield pool, theirs

    def _forget_a_target(self, now: float) -> None:
        if len(self.targets) >= TARGETS_MAX:
            idle = next((name for name, pool in self.targets.items() if not pool.leases_at(now)), None)
            if idle is not None:
                self.forget(idle)


def note_filled(pool: TargetPool, kind: frozenset[tuple[str, str]]) -> None:
    """There is nothing more for this target that it may take in for this kind of wish."""
    if kind not in pool.filled and len(pool.filled) >= KINDS_MAX:
        pool.filled.clear()
    pool.filled.add(kind)


def _told(proxy: Proxy) -> tuple[object, ...]:
    """Return what targets know of a proxy that is no part of who it is."""
    return dict(proxy.tags), proxy.price_gb, proxy.price_request
