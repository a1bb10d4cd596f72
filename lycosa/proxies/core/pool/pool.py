"""The proxy pool: a global pool of all proxies, sorted by latency, from which the pool of each target is filled.

A proxy may be leased for many targets at once. The targets share only the global facts about it (`ProxyFacts`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import filterfalse, islice

from msgspec.structs import asdict

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool import journal
from lycosa.proxies.core.pool.health import UNCHECKED, ProxyHealth, proves_reached
from lycosa.proxies.core.pool.nearest import LatencyIndex
from lycosa.proxies.core.pool.target import ANY, Grant, ProxyRequest, TargetPool, Wait
from lycosa.proxies.core.pool.target_state import ProxyFacts
from lycosa.proxies.core.proxy import Proxy

TARGETS_MAX = 10_000
"""Beyond this number, a new target replaces the least recently used one without leases, if any."""

PROXIES_MAX = 1_000_000
FORGOTTEN_MAX = 500
"""Maximum number of dead proxies to forget per call, which must not block for long."""

PRICES_MAX = 1_000
"""Beyond this number of distinct prices, a proxy with a new price gets the tier of the next higher price."""

KINDS_MAX = 1_000
"""Maximum number of kinds of requests (sets of requested tags) for which a target is marked as filled. Beyond it, all
marks are removed."""

RECORD_MAX = 1_000
"""Maximum number of proxies in one journal record."""

ROTATING, NO = "rotating", "no"
"""A proxy with the tag ROTATING changes its exit address, so no other proxy shares its bans. The value NO means that
the exit address is fixed."""


class GlobalPool:
    """Proxies, their health, and the pools of targets. `policy_of(target)` returns the policy of a new target.

    `journal` is called with a packed record of each change, before the caller gets the result. If it raises, the pool
    has changed nevertheless: the whole pool must be stored before further records are written.

    `token`: the highest lease token of all forgotten targets. `reached_at`: when any proxy was last reached.
    """

    def __init__(self, policy_of: Callable[[str], TargetPolicy]) -> None:
        self.proxies: dict[str, Proxy] = {}
        self.health: dict[str, ProxyHealth] = {}
        self.targets: OrderedDict[str, TargetPool] = OrderedDict()
        self.policy_of = policy_of
        self.journal: Callable[[bytes], None] | None = None
        self.token = 0
        self.reached_at = 0.0
        self._by_latency = LatencyIndex()
        self._prices: list[tuple[float, float]] = []

    def add(self, proxies: Iterable[Proxy], now: float, *, unchecked: bool = False) -> int:
        if self.journal is None:
            return self._add(proxies, now, unchecked=unchecked)
        added = 0
        changed = [proxy for proxy in proxies if not _is_same(self.proxies.get(proxy.key), proxy)]
        for start in range(0, len(changed), RECORD_MAX):
            some = changed[start : start + RECORD_MAX]
            added += self._add(some, now, unchecked=unchecked)
            self._log(journal.AddRecord(now, some, unchecked))
        return added

    def remove(self, key: str, now: float) -> bool:
        return bool(self.remove_all([key], now))

    def remove_all(self, keys: Iterable[str], now: float) -> list[str]:
        """Return the keys that were in the pool."""
        removed = [key for key in dict.fromkeys(keys) if key in self.proxies]
        for key in removed:
            del self.proxies[key]
            self._by_latency.remove(self.health.pop(key).sort_latency_s(), key)
        for target, members in self._targets_with(removed):
            target.expire(now)
            for key in members:
                target.forget(key)
        for key in removed:
            self._log(journal.RemoveRecord(now, key))
        return removed

    def forget_dead(self, kept_s: float, now: float) -> list[str]:
        """Like `ProxyPool.forget_dead`, for up to FORGOTTEN_MAX proxies."""
        leased: set[str] = set()
        for target in self.targets.values():
            target.expire(now)
            leased.update(target.deadlines())
        dead = (key for key, health in self.health.items() if health.dead_for_s(now) >= kept_s)
        return self.remove_all(islice(filterfalse(leased.__contains__, dead), FORGOTTEN_MAX), now)

    def acquire(
        self, target: str, now: float, draws: Sequence[float], request: ProxyRequest = ANY, lease_s: float | None = None
    ) -> list[Grant] | Wait:
        pool = self.target(target, now)
        if request.kind not in pool.filled:  # filling reads all proxies, so it is done only after a change
            self._fill(target, pool, now, request)
        grants = pool.acquire(now, draws, request, lease_s)
        if self.journal is not None and not isinstance(grants, Wait):
            keys, first = [grant.key for grant in grants], grants[0]
            self._log(journal.GrantRecord(now, target, first.token, keys, first.deadline, request.session))
        return grants

    def renew(self, target: str, token: int, now: float, lease_s: float | None = None) -> float | None:
        pool = self.targets.get(target)
        until = None if pool is None else pool.renew(token, now, lease_s)
        if pool is not None and until is not None and self.journal is not None:
            self._log(journal.RenewRecord(now, target, token, pool.policy.lease_s if lease_s is None else lease_s))
        return until

    def release(self, target: str, token: int, outcomes: Sequence[Outcome], now: float, draw: float) -> str | None:
        """Return the key of the proxy; None if the lease had ended before."""
        pool = self.targets.get(target)
        if pool is None:
            return None
        key = pool.release(token, outcomes, now, draw)
        if key is not None:
            self._record(key, outcomes, now, draw)
        if self.journal is not None:
            self._log(journal.ReleaseRecord(now, target, token, list(outcomes), draw))
        return key

    def record(self, key: str, outcomes: Sequence[Outcome], now: float, draw: float) -> None:
        """Record outcomes of a proxy. If it is not in the pool, they only update `reached_at`."""
        self._record(key, outcomes, now, draw)
        if self.journal is not None:
            self._log(journal.OutcomesRecord(now, key, list(outcomes), draw))

    def ban(self, target: str, key: str, now: float, until: float | None = None, reason: str = "by hand") -> bool:
        if key not in self.proxies:
            return False
        self._joined(target, key, now).ban(key, now, until, reason)
        self._log(journal.BanRecord(now, target, key, until, reason))
        return True

    def unban(self, target: str, key: str, now: float) -> bool:
        if key not in self.proxies:
            return False
        self._joined(target, key, now).unban(key, now)
        self._log(journal.UnbanRecord(now, target, key))
        return True

    def revive(self, key: str, now: float, exit_ip: str = "") -> None:
        """Record that a check has found a proxy working, and its exit address."""
        health, proxy = self.health[key], self.proxies[key]
        for pool in self.targets.values() if health.dead else ():
            pool.filled.clear()  # targets without this proxy may now get it
        health.revive(now)
        health.exit_ip = exit_ip if proxy.tags.get(ROTATING, NO) == NO else ""
        self._update_targets([key], now)
        self._log(journal.ReviveRecord(now, key, exit_ip))

    def target(self, name: str, now: float) -> TargetPool:
        pool = self.targets.get(name)
        if pool is None:
            if len(self.targets) >= TARGETS_MAX:
                idle = next((name for name, pool in self.targets.items() if not pool.leases_at(now)), None)
                if idle is not None:
                    self.forget_target(idle)
            pool = self.add_target(name, self.policy_of(name))
        self.targets.move_to_end(name)
        return pool

    def add_target(self, name: str, policy: TargetPolicy) -> TargetPool:
        """The tokens of the new target differ from all tokens of forgotten targets."""
        pool = self.targets[name] = TargetPool(policy, self.token)
        self._log(journal.AddTargetRecord(name, policy))
        return pool

    def forget_target(self, name: str) -> None:
        self.token = max(self.token, self.targets.pop(name).parts()[1].token)
        self._log(journal.ForgetTargetRecord(name))

    def replay(self, record: journal.JournalRecord) -> None:
        """Apply a recorded change. Raises `KeyError` or `ValueError` if it does not fit this pool."""
        getattr(self, record.method)(**asdict(record))

    def replay_acquire(
        self, target: str, now: float, token: int, keys: Sequence[str], until: float, session: str
    ) -> None:
        self.targets.move_to_end(target)
        grants = self.targets[target].replay_acquire(keys, now, until, session)
        if grants[0].token != token:
            raise ValueError(f"the lease of {target} has token {grants[0].token}, but {token} in the journal")

    def replay_fill(self, target: str, now: float, kind: Iterable[tuple[str, str]], keys: Iterable[str]) -> None:
        pool = self.targets[target]
        for key in keys:
            pool.learn(key, self.facts(key), now)
        _note_filled(pool, frozenset(kind))

    def restore(
        self, proxies: Iterable[Proxy], health: Iterable[ProxyHealth], prices: Iterable[tuple[float, float]]
    ) -> None:
        self._prices = list(prices)
        for proxy, known in zip(proxies, health, strict=True):
            self.proxies[proxy.key], self.health[proxy.key] = proxy, known
            self._by_latency.add(known.sort_latency_s(), proxy.key)

    def prices(self) -> list[tuple[float, float]]:
        """Return all known prices, ascending, at most PRICES_MAX. A tier is an index into them."""
        return list(self._prices)

    def nearest(self) -> Iterator[str]:
        return iter(self._by_latency)

    def facts(self, key: str) -> ProxyFacts:
        proxy = self.proxies[key]
        tier = bisect_left(self._prices, (proxy.price_gb, proxy.price_request))
        return self.health[key].facts(min(tier, len(self._prices) - 1), proxy.tags)

    def _log(self, record: journal.JournalRecord) -> None:
        if self.journal is not None:
            self.journal(journal.encode(record))

    def _add(self, proxies: Iterable[Proxy], now: float, *, unchecked: bool) -> int:
        before = len(self.proxies)
        prices = len(self._prices)
        changed = []
        for proxy in proxies:
            if proxy.key not in self.health:
                if len(self.proxies) >= PROXIES_MAX:
                    continue
                health = ProxyHealth(dead=True, dead_at=now, reason=UNCHECKED) if unchecked else ProxyHealth()
                self.health[proxy.key] = health
                self._by_latency.add(health.sort_latency_s(), proxy.key)
            elif not _is_same(self.proxies[proxy.key], proxy):
                changed.append(proxy.key)
            self.proxies[proxy.key] = proxy
            self._add_price((proxy.price_gb, proxy.price_request))
        for pool in self.targets.values():
            pool.filled.clear()
        # A new price shifts the tiers of all more expensive proxies.
        self._update_targets(changed if len(self._prices) == prices else self.proxies, now)
        return len(self.proxies) - before

    def _add_price(self, price: tuple[float, float]) -> None:
        place = bisect_left(self._prices, price)
        if self._prices[place : place + 1] != [price] and len(self._prices) < PRICES_MAX:
            self._prices.insert(place, price)

    def _record(self, key: str, outcomes: Sequence[Outcome], now: float, draw: float) -> None:
        if any(map(proves_reached, outcomes)):
            self.reached_at = now
        health = self.health.get(key)
        if health is None:
            return
        before, targets_must_know = health.sort_latency_s(), False
        for outcome in outcomes:
            targets_must_know |= health.record(outcome, now, draw, self.reached_at)
        if health.sort_latency_s() != before:
            self._by_latency.remove(before, key)
            self._by_latency.add(health.sort_latency_s(), key)
        if targets_must_know:
            self._update_targets([key], now)

    def _fill(self, name: str, pool: TargetPool, now: float, request: ProxyRequest) -> None:
        """Add proxies with the requested tags, lowest latency first, until `policy.members` members are usable."""
        joined = []
        usable = sum(member.usable and request.has_tags(member) for member in pool.members.values())
        missing = pool.policy.members - usable
        for key in self._candidates(pool, request) if missing > 0 else ():
            pool.learn(key, self.facts(key), now)
            joined.append(key)
            missing -= pool.members[key].usable
            if missing <= 0:
                break
        _note_filled(pool, request.kind)
        for start in range(0, max(1, len(joined)), RECORD_MAX):
            self._log(journal.FillRecord(now, name, sorted(request.kind), joined[start : start + RECORD_MAX]))

    def _joined(self, target: str, key: str, now: float) -> TargetPool:
        """Make a proxy a member of a target. Return the target's pool."""
        pool = self.target(target, now)
        if key not in pool.members:
            pool.learn(key, self.facts(key), now)
        return pool

    def _candidates(self, pool: TargetPool, request: ProxyRequest) -> Iterator[str]:
        for key in self.nearest():
            has_tags = request.tags.items() <= self.proxies[key].tags.items()
            if key not in pool.members and not self.health[key].dead and has_tags:
                yield key

    def _update_targets(self, keys: Iterable[str], now: float) -> None:
        facts: dict[str, ProxyFacts] = {}
        for pool, members in self._targets_with(keys):
            for key in members:
                if key not in facts:
                    facts[key] = self.facts(key)
                pool.learn(key, facts[key], now)

    def _targets_with(self, keys: Iterable[str]) -> Iterator[tuple[TargetPool, list[str]]]:
        """Yield each target that has any of these proxies as members, with their keys."""
        distinct = dict.fromkeys(keys)
        if len(distinct) == 1:  # the usual case
            key, *_ = distinct
            yield from ((pool, [key]) for pool in self.targets.values() if key in pool.members)
            return
        for pool in self.targets.values() if distinct else ():
            # Loop over the smaller side: both may have a million keys.
            few, many = (distinct, pool.members) if len(distinct) < len(pool.members) else (pool.members, distinct)
            if members := [key for key in few if key in many]:
                yield pool, members


def _note_filled(pool: TargetPool, kind: frozenset[tuple[str, str]]) -> None:
    if kind not in pool.filled and len(pool.filled) >= KINDS_MAX:
        pool.filled.clear()
    pool.filled.add(kind)


def _is_same(known: Proxy | None, proxy: Proxy) -> bool:
    return known is not None and (proxy, *_extras(proxy)) == (known, *_extras(known))


def _extras(proxy: Proxy) -> tuple[object, ...]:
    return dict(proxy.tags), proxy.price_gb, proxy.price_request
