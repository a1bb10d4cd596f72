"""A hundred workers share a pool (P2, P5), and some die with what they have: nothing is lent twice, all is counted."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.proxies.outcome import Outcome
from lycosa.core.proxies.policy import TargetPolicy
from lycosa.core.proxies.proxy import Proxy
from lycosa.ports import Lent, ProxyPool
from lycosa.proxies.local import LocalPool
from lycosa.proxies.redis import redis_pool
from tests.conftest import PROVE

ACQUIRES = 1_000_000 if PROVE else 20_000
WORKERS, PROXIES, TARGETS = 100, 200, 5
LEAKED = 0.05
LEASE_S = 2.0
BACK_WITHIN_S = 1.0
"""After the end of a lease that nobody returned. It is looked for when it is wanted, so that takes no timer."""

WAIT_S = 60.0


class Bookkeeper:
    """Knows who has what by being told by those who have it."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], float] = {}
        self.uses: Counter[tuple[str, str]] = Counter()
        self.leaked = self.twice = 0

    def lent(self, lent: Lent) -> None:
        """Note it; what another still has, and will return in time, is lent twice."""
        which = lent.target, lent.proxy.key
        until = self.held.pop(which, None)
        if until is not None:
            self.twice += time.time() < until - 0.001
        self.uses[which] += 1

    def returned(self, lent: Lent, uses: int) -> None:
        self.uses[lent.target, lent.proxy.key] += max(0, uses - 1)


async def work(pool: ProxyPool, books: Bookkeeper, acquires: int, chance: random.Random) -> None:
    for _ in range(acquires):
        (lent,) = await pool.acquire(f"site{chance.randrange(TARGETS)}.example", wait_s=WAIT_S)
        books.lent(lent)
        books.held[lent.target, lent.proxy.key] = lent.deadline
        await asyncio.sleep(0)
        if chance.random() < LEAKED:
            books.leaked += 1
            continue
        uses = chance.choice([0, 1, 1, 1, 3])
        del books.held[lent.target, lent.proxy.key]  # from now on another may have it
        assert await pool.release(lent, [Outcome()] * uses) or time.time() > lent.deadline
        books.returned(lent, uses)


@pytest.mark.parametrize("kind", ["memory", pytest.param("redis", marks=pytest.mark.redis)])
def test_a_hundred_workers(request: pytest.FixtureRequest, kind: str) -> None:
    seed = random.randrange(1 << 32)
    print("seed", seed)

    async def story() -> tuple[Bookkeeper, list[Any], list[Any]]:
        def policy(_: str) -> TargetPolicy:
            return TargetPolicy(lease_s=LEASE_S)

        url = request.getfixturevalue("redis").url if kind == "redis" else ""
        name = token_hex(4)
        # Each of ten processes has a pool of its own; here they share one loop.
        pools = [await redis_pool(url, name, print, policy) for _ in range(10)] if url else [LocalPool(policy)]
        await pools[0].add([Proxy("http", f"10.0.{n // 250}.{n % 250 + 1}", 8080) for n in range(PROXIES)])
        books, each = Bookkeeper(), ACQUIRES // WORKERS
        began = time.monotonic()
        await asyncio.gather(
            *(work(pools[n % len(pools)], books, each, random.Random(seed + n)) for n in range(WORKERS))
        )
        print(f"{ACQUIRES / (time.monotonic() - began):,.0f} leases a second, {books.leaked:,} leaked")
        await asyncio.sleep(LEASE_S + BACK_WITHIN_S)
        targets, views = (
            await pools[0].targets(),
            {t.target: await pools[0].proxies(t.target) for t in await pools[0].targets()},
        )
        for pool in pools:
            await pool.close()
        return books, targets, [(target, view) for target, found in views.items() for view in found]

    books, targets, views = asyncio.run(story())
    assert books.twice == 0
    assert {(target, view.proxy.key): view.uses for target, view in views if view.uses} == dict(books.uses)
    assert sum(view.granted for view in targets) == ACQUIRES
    assert sum(view.leaked for view in targets) >= books.leaked
    assert sum(view.leases for view in targets) == 0, "every lease that leaked is back in time"
