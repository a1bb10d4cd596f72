"""The Lua script for all proxies of a pool, compared with `GlobalPool` in random histories."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.health import NO_PROXY_KEY, REACHED, ProxyHealth, proves_reached
from lycosa.proxies.core.pool.pool import ROTATING, GlobalPool
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.redis.scripts import POOL_SCRIPT
from lycosa.proxies.views import facts_of, from_stored, to_stored
from tests.conftest import PROVE
from tests.proxies.sim.proxy_steps import run_comparison, run_histories

pytestmark = pytest.mark.redis

HISTORIES = 400 if PROVE else 8
BLAMES = [Blame.NONE, Blame.NOBODY, Blame.MISS, Blame.SITE, Blame.UNFIT, *[Blame.PROXY] * 8]
TAGS: list[dict[str, str]] = [{}, {}, {"country": "de"}, {ROTATING: "yes"}, {ROTATING: "no"}]
SITE = "a.example"
PRICES = (0.0, 0.0, 0.0, 0.5, 4.0)


def random_proxy(rng: random.Random) -> Proxy:
    """Return one of 14 proxies, with changing tags and prices."""
    facts = {"price_gb": rng.choice(PRICES), "price_request": rng.choice(PRICES)}
    return Proxy("http", f"10.0.0.{rng.randrange(14)}", 80, "ann", "secret", rng.choice(TAGS), **facts)


class PoolComparison:
    """All proxies in memory and on a server.

    All of them are members of one target, to check which changed facts of members the script reports.
    """

    def __init__(self, client: Any, seed: int, change: Callable[[bytes], bytes] = lambda text: text) -> None:
        self.rng = random.Random(seed)
        self.client = client
        self.sha = client.script_load(change(POOL_SCRIPT.text))
        self.prefix = f"lycosa:proxies:{{pool{seed}}}:"
        self.now = 1_000_000.0
        self.model = GlobalPool(lambda _: TargetPolicy(members=1000))
        self.version, self.facts_version = self.call("versions")
        self.used: dict[str, float] = {}
        self.prices: set[tuple[float, float]] = set()

    def call(self, command: str, **arguments: Any) -> Any:
        packed = msgspec.msgpack.encode(arguments)
        answer = self.client.execute_command("EVALSHA", self.sha, 1, self.prefix, repr(self.now), command, packed)
        return msgspec.msgpack.decode(answer)

    def run(self) -> None:
        run_comparison(self)

    def step(self) -> None:
        self.now += self.rng.choice([0.0, 0.01, 2.0, 30.0, 2000.0])
        self.rng.choice(
            [self.add] * 2 + [self.record] * 6 + [self.refill] * 2 + [self.revive, self.remove, self.forget_dead]
        )()

    def add(self) -> None:
        added = {each.key: each for each in (random_proxy(self.rng) for _ in range(self.rng.choice([1, 1, 5])))}
        prices = {(each.price_gb, each.price_request) for each in added.values()}
        known = {key: to_stored(self.model.proxies[key]) for key in added if key in self.model.proxies}
        changed_keys = [key for key, before in known.items() if before != to_stored(added[key])]
        new, tiers, changed = self.call("add", proxies={key: to_stored(each) for key, each in added.items()})
        assert new == self.model.add(added.values(), self.now)
        assert facts_of(changed) == {key: self.model.facts(key) for key in changed_keys}
        assert tiers == (not prices <= self.prices), "a new price changes the tiers"
        self.prices |= prices
        self.changed(bool(changed_keys))

    def remove(self) -> None:
        keys = [random_proxy(self.rng).key for _ in range(2)]
        removed = sum(self.model.remove(key, self.now) for key in keys)
        assert self.call("remove", keys=keys) == removed
        self.facts_version += 1

    def forget_dead(self) -> None:
        """Forget dead proxies; the request also names some that may be alive."""
        max_age_s = self.rng.choice([0.0, 2000.0, 6000.0])
        before = dict(self.model.proxies)
        forgotten = self.model.forget_dead(max_age_s, self.now)
        cursor, dead = self.call("list_dead", cursor="0", kept_s=max_age_s)
        assert (cursor, sorted(dead)) == ("0", sorted(forgotten))
        keys = [*dead, *self.rng.sample(sorted(before), min(2, len(before)))]
        assert sorted(self.call("forget_dead", keys=keys, kept_s=max_age_s)) == sorted(forgotten)

    def record(self) -> None:
        """Record outcomes, some of them of removed proxies, which change nothing."""
        self.fill_target()
        members = self.model.target(SITE, self.now).members
        before = {key: member.facts for key, member in members.items()}
        recorded = {random_proxy(self.rng).key: (self.outcomes(), self.rng.random()) for _ in range(3)}
        if any(proves_reached(each) for outcomes, _ in recorded.values() for each in outcomes):
            self.model.record(NO_PROXY_KEY, REACHED, self.now, 0.0)  # no matter which proxy it was
        for key, (outcomes, draw) in recorded.items():
            self.model.record(key, outcomes, self.now, draw)
        sent = {key: {"outcomes": outcomes, "draw": draw} for key, (outcomes, draw) in recorded.items()}
        expected = {key: self.model.facts(key) for key, member in members.items() if member.facts is not before[key]}
        assert facts_of(self.call("record", reports=sent)) == expected

    def outcomes(self) -> list[Outcome]:
        return [
            Outcome(
                self.rng.choice(BLAMES),
                self.rng.choice(["", "x", "y"]),
                None,
                self.rng.choice([None, 0.1, 1.5]),
            )
            for _ in range(self.rng.choice([0, 1, 1, 3]))
        ]

    def revive(self) -> None:
        key, exit_ip = random_proxy(self.rng).key, self.rng.choice(["", "9.9.9.9"])
        facts = facts_of(self.call("revive", key=key, exit_ip=exit_ip))
        if key not in self.model.proxies:
            assert facts == {}
            return
        self.model.revive(key, self.now, exit_ip)
        assert facts == {key: self.model.facts(key)}
        self.changed()

    def refill(self) -> None:
        """Fill a target with the nearest living proxies that fit."""
        members = self.rng.sample(sorted(self.model.proxies), min(2, len(self.model.proxies)))
        tags, count, site = self.rng.choice(TAGS), self.rng.choice([0, 3, 100]), self.rng.choice("abc")
        expected = [
            key
            for key in self.model.nearest()
            if key not in members
            and not self.model.health[key].dead
            and tags.items() <= self.model.proxies[key].tags.items()
        ][:count]
        found, version, evicted = self.call("refill", target=site, tags=tags, has=members, count=count)
        assert facts_of(found) == {key: self.model.facts(key) for key in expected}
        assert (version, evicted) == (self.version, [])
        self.used[site] = self.now

    def fill_target(self) -> None:
        """Make all proxies members of the target."""
        target = self.model.target(SITE, self.now)
        for key in self.model.proxies:
            if key not in target.members:
                target.learn(key, self.model.facts(key), self.now)

    def changed(self, facts_changed: bool = False) -> None:
        """Check and store the new versions. `facts_changed`: known proxies have new tags or prices."""
        version, facts_version = self.call("versions")
        assert version > self.version
        assert facts_version == self.facts_version + facts_changed
        self.version, self.facts_version = version, facts_version

    def compare(self) -> None:
        stored = self.call("list")
        assert [key for key, *_ in stored] == list(self.model.nearest())
        for key, proxy, health in stored:
            expected = self.model.proxies[key]
            assert from_stored(proxy) == expected
            assert to_stored(from_stored(proxy)) == to_stored(expected), "tags and prices are stored"
            assert read_health(health) == self.model.health[key]
        keys = [*self.model.proxies, "nobody"]
        assert facts_of(self.call("facts", keys=keys)) == {key: self.model.facts(key) for key in self.model.proxies}
        one = self.rng.choice(keys)
        assert bool(self.call("proxy", key=one)) == (one in self.model.proxies)
        assert self.call("versions") == [self.version, self.facts_version], "nothing else changes the versions"
        last_used = sorted(self.used, key=lambda site: (self.used[site], site))
        assert self.client.zrange(f"{self.prefix}t", 0, -1) == [site.encode() for site in last_used]


def read_health(answer: dict[str, Any]) -> ProxyHealth:
    """Return the health in the answer of a script."""
    return ProxyHealth(**{**answer, "latency_s": None if answer["latency_s"] is False else answer["latency_s"]})


@pytest.mark.parametrize("part", range(4))
def test_random_histories_are_equal_in_memory_and_on_a_server(redis: Any, part: int) -> None:
    run_histories(redis.url, PoolComparison, HISTORIES // 4)
