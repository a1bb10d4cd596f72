"""One load of `bench/proxies.py`, in a process of its own: `python bench/proxies_load.py LOAD`, where LOAD is JSON.

Workers lease a proxy and return it with an outcome, again and again, with nothing in between. The peers on Redis are
other implementations, written here. One takes a proxy out of a hash and puts it back, as jhao104/proxy_pool does. The
other has a sorted set by number of uses, as in the first design of this pool. Neither has leases, so both lose the
proxies that a process has when it crashes.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyPool
from lycosa.proxies.redis.pool import redis_pool

SITE = "shop.example"
HELD = 50
"""Number of leases that are held all the time, in the loads in memory."""

WAIT_S = 60.0
ROUND = 500
GOOD = [Outcome(latency_s=latency_s / 100) for latency_s in range(10, 30)]


@dataclass(frozen=True)
class Load:
    """What to do: `pairs` times a lease and a return. `how`: a key of WISHES or PAIRS; `result`: a file for figures."""

    how: str
    pairs: int
    result: str
    url: str = ""
    name: str = ""
    workers: int = 100
    proxies: int = 1_000
    policy: dict[str, Any] = field(default_factory=dict)
    seed: int = 1

    def policies(self) -> Callable[[str], TargetPolicy]:
        """Return the policies: one policy for all targets."""
        policy = TargetPolicy(**self.policy)
        return lambda _: policy


def make_proxies(count: int) -> list[Proxy]:
    """Return this number of proxies, a tenth of them in Germany."""
    return [
        Proxy("http", f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}", 80, tags={"country": "fr" if n % 10 else "de"})
        for n in range(count)
    ]


# --------------------------------------------------------------------------------------------------------------- memory


async def memory(load: Load) -> dict[str, Any]:
    """Return the CPU time of a pair in the best of many rounds; other load disturbs the rest."""
    pool = LocalPool(load.policies())
    await pool.add(make_proxies(load.proxies))
    wish_of = WISHES[load.how]
    lease = deque([await one(pool, wish_of(number)) for number in range(HELD)])
    if load.how == "ban":
        await ban_some(pool)
    best_s = 1.0
    for begin in range(0, load.pairs, ROUND):
        began = time.process_time()
        for number in range(begin, begin + ROUND):
            lease.append(await one(pool, wish_of(number)))
            await pool.release(lease.popleft(), [GOOD[number % len(GOOD)]])
        best_s = min(best_s, (time.process_time() - began) / ROUND)
    return {"cpu_s": best_s}


async def one(pool: ProxyPool, request: ProxyRequest) -> Any:
    (lease,) = await pool.acquire(SITE, request=request, wait_s=WAIT_S)
    return lease


async def ban_some(pool: ProxyPool) -> None:
    """Lease 300 proxies one after the other, and return every third of them as banned."""
    for number in range(300):
        lease = await one(pool, ProxyRequest())
        await pool.release(lease, [Outcome(Blame.SITE, "403") if number % 3 == 0 else Outcome()])


GERMAN = ProxyRequest({"country": "de"})
WISHES: dict[str, Callable[[int], ProxyRequest]] = {
    "session": lambda number: ProxyRequest(session=f"s{number % 100}"),
    "tags": lambda _: GERMAN,
}
PLAIN = ProxyRequest()
for row in ("plain", "million", "ban"):
    WISHES[row] = lambda _: PLAIN


# ---------------------------------------------------------------------------------------------------------------- Redis


async def redis(load: Load) -> dict[str, Any]:
    """Return when the workers began and ended, and the CPU time of this process."""
    pair, close = await PAIRS[load.how](load)
    left = iter(range(load.pairs))

    async def work() -> None:
        for _ in left:
            await pair()

    began, cpu = time.time(), time.process_time()
    await asyncio.gather(*(work() for _ in range(load.workers)))
    figures = {"began": began, "ended": time.time(), "cpu_s": time.process_time() - cpu, "pairs": load.pairs}
    await close()
    return figures


Pair = tuple[Callable[[], Awaitable[None]], Callable[[], Awaitable[None]]]


async def ours(load: Load) -> Pair:
    pool = await redis_pool(load.url, load.name, print, load.policies())
    chance = random.Random(load.seed)

    async def pair() -> None:
        lease = await one(pool, PLAIN)
        assert await pool.release(lease, [GOOD[chance.randrange(len(GOOD))]])

    return pair, pool.close


def client(load: Load) -> Any:
    from redis import asyncio as package

    return package.Redis.from_url(load.url)


async def jhao104(load: Load) -> Pair:
    """Read all keys, choose one by chance and read its value; delete the key; put it back."""
    server, chance = client(load), random.Random(load.seed)

    async def pair() -> None:
        key = chance.choice(await server.hkeys(load.name))
        value = await server.hget(load.name, key)
        await server.hdel(load.name, key)
        # None: another worker has taken this proxy in between. Otherwise, too, another worker may have it.
        if value is not None:
            await server.hset(load.name, key, value)

    return pair, server.aclose


async def counts(load: Load) -> Pair:
    """Take the proxy with the fewest uses out of the set, and put it back with one more use."""
    server = client(load)

    async def pair() -> None:
        while not (found := await server.zpopmin(load.name)):  # noqa: ASYNC110
            await asyncio.sleep(0.001)  # as a polling client does
        key, uses = found[0]
        await server.zadd(load.name, {key: uses + 1})

    return pair, server.aclose


PAIRS: dict[str, Callable[[Load], Awaitable[Pair]]] = {"lycosa": ours, "jhao104": jhao104, "counts": counts}


async def fill(load: Load) -> None:
    """Store the proxies in the form of this implementation."""
    proxies = make_proxies(load.proxies)
    if load.how == "lycosa":
        pool = await redis_pool(load.url, load.name, print, load.policies())
        await pool.add(proxies)
        await pool.close()
        return
    server = client(load)
    if load.how == "counts":
        await server.zadd(load.name, dict.fromkeys((proxy.name for proxy in proxies), 0))
    else:
        stored = {proxy.name: json.dumps({"proxy": proxy.name, "https": False, "fail_count": 0}) for proxy in proxies}
        await server.hset(load.name, mapping=stored)
    await server.aclose()


if __name__ == "__main__":
    load = Load(**json.loads(sys.argv[1]))
    measured = asyncio.run(redis(load) if load.how in PAIRS else memory(load))
    Path(load.result).write_text(json.dumps(measured))
