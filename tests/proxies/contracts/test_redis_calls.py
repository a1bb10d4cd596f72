"""The calls of a pool on Redis (P5): few round trips for many, and what was asked for is done whoever still listens."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from math import ceil
from secrets import token_hex
from typing import Any

import pytest
import redis as driver

from lycosa.core.errors import NoProxy
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.pool import TARGETS_MAX
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool
from lycosa.proxies.redis import outcome_reporter, refiller
from lycosa.proxies.redis.calls import TOGETHER_MAX, Gathered
from lycosa.proxies.redis.pool import AT_LEAST_S, SAY_WHY_S, redis_pool
from lycosa.proxies.redis.target_script import script_of

pytestmark = pytest.mark.redis

SITE = "a.example"
NAME = token_hex(4)
LONG_S = 20.0


def proxies(count: int) -> list[Proxy]:
    return [Proxy("http", f"10.0.0.{number + 1}", 8080) for number in range(count)]


def play(server: Any, story: Callable[[ProxyPool], Awaitable[None]], count: int, name: str = "") -> None:
    async def whole() -> None:
        pool = await redis_pool(server.url, name or token_hex(4), print)
        await pool.add(proxies(count))
        try:
            await story(pool)
        finally:
            await pool.close()

    asyncio.run(whole())


def trips(server: Any) -> int:
    """Return how many scripts were run."""
    with driver.Redis.from_url(server.url) as client:
        found: dict[str, dict[str, int]] = client.info("commandstats")  # type: ignore[assignment]
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


@pytest.fixture
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing go to the server because its time has come: on a busy machine that is more often."""
    monkeypatch.setattr(outcome_reporter, "HEAR_S", 10 * LONG_S)
    monkeypatch.setattr(refiller, "SEE_S", 10 * LONG_S)


@pytest.mark.usefixtures("no_clock")
def test_many_ask_in_few_round_trips(redis: Any) -> None:
    async def story(pool: ProxyPool) -> None:
        (first,) = await pool.acquire(SITE)  # fills up
        await pool.release(first)
        before = trips(redis)
        lease = [each for (each,) in await asyncio.gather(*(pool.acquire(SITE) for _ in range(100)))]
        assert len({each.proxy.key for each in lease}) == 100
        assert all(await asyncio.gather(*(pool.release(each, [Outcome()]) for each in lease)))
        assert trips(redis) - before <= 2 * ceil(100 / TOGETHER_MAX)

    play(redis, story, 100)


def test_a_full_round_trip_goes_beside_the_one_under_way_and_others_wait_for_its_end() -> None:
    """What the server does and what the process does with the answers go on at the same time."""
    call = script_of(TargetPolicy()).look()

    async def story() -> None:
        sent: list[int] = []
        goes_on = asyncio.Semaphore(0)

        async def run(calls: Sequence[Any]) -> list[Any]:
            sent.append(len(calls))
            await goes_on.acquire()
            return list(range(len(calls)))

        gathered = Gathered(run, lambda: sent.append(-1))
        answers = [gathered.add([call])]
        await beats()
        answers += [gathered.add([call] * 5) for _ in range(TOGETHER_MAX // 5)]
        await beats()
        assert sent == [1], "few wait for the end of the first"
        answers += [gathered.add([call] * 5) for _ in range(20)]
        await beats()
        assert sent[0] == 1
        assert len(sent) == 2
        assert TOGETHER_MAX <= sent[1] < TOGETHER_MAX + 5, "those that are asked for together stay together"
        for _ in range(20):
            goes_on.release()
        async with asyncio.timeout(LONG_S):
            told = await asyncio.gather(*answers)
            await gathered.is_over
        assert {len(each) for each in told[1:]} == {5}
        assert told[0] == [0]
        assert sent[-1] == -1
        assert sent.count(-1) == 1

    asyncio.run(story())


async def beats() -> None:
    """Let everything go on that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("no_clock")
def test_few_round_trips_however_many_wait(redis: Any) -> None:
    """One proxy for 60: each return is one round trip, and the next lease another, however many wait."""

    async def story(pool: ProxyPool) -> None:
        async def one() -> None:
            (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
            await pool.release(lease, [Outcome()])

        await one()
        before = trips(redis)
        await asyncio.gather(*(one() for _ in range(60)))
        assert trips(redis) - before <= 60 * 3

    play(redis, story, 1)


def test_who_does_not_want_to_wait_is_told_at_once_though_others_wait(redis: Any) -> None:
    async def story(pool: ProxyPool) -> None:
        (lease,) = await pool.acquire(SITE)
        waiting = [asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S)) for _ in range(5)]
        picky = asyncio.create_task(pool.acquire(SITE, 2, wait_s=LONG_S))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(LONG_S / 2):
            with pytest.raises(NoProxy, match="1 leased"):
                await pool.acquire(SITE)
            with pytest.raises(NoProxy, match="1 leased"):
                await pool.acquire(SITE, request=ProxyRequest(session="s"))
        for task in waiting:
            await pool.release(lease)
            (lease,) = await task
        picky.cancel()

    play(redis, story, 1)


def test_a_server_that_stands_still_is_told_when_the_wait_is_over(redis: Any) -> None:
    async def story(pool: ProxyPool) -> None:
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease)
        redis.process.send_signal(signal.SIGSTOP)
        began = time.monotonic()
        try:
            waits = [
                pool.acquire(SITE),
                pool.acquire(SITE, wait_s=1.0),
                pool.acquire(SITE, request=ProxyRequest(session="s")),
            ]
            told = await asyncio.gather(*waits, return_exceptions=True)
        finally:
            redis.process.send_signal(signal.SIGCONT)
        assert [str(each) for each in told] == 3 * [f"no proxy for {SITE}: the server of the pool does not answer"]
        assert time.monotonic() - began < AT_LEAST_S + SAY_WHY_S + 10.0
        assert len(await pool.acquire(SITE, wait_s=LONG_S)) == 1, "who went has no lease"

    play(redis, story, 1)


def test_what_was_asked_for_is_done_whoever_still_listens(redis: Any) -> None:
    async def story(pool: ProxyPool) -> None:
        for _ in range(20):
            (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
            returning = asyncio.create_task(pool.release(lease, [Outcome()]))
            await asyncio.sleep(0)
            returning.cancel()
            asking = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
            await asyncio.sleep(0)
            asking.cancel()
            await asyncio.wait([returning, asking])
        assert len(await pool.acquire(SITE, wait_s=LONG_S)) == 1, "neither the return nor the lease is lost"
        (view,) = await pool.targets()
        assert (view.leases, view.leaked) == (1, 0)

    play(redis, story, 1)


def test_who_is_killed_while_he_removes_a_proxy_leaves_no_ghost(redis: Any) -> None:
    """It is gone, and its target was not told: who draws it there tells the target, so that nobody draws it again."""

    async def whole() -> None:
        remover, other = [await redis_pool(redis.url, name, print) for name in [token_hex(4)] * 2]
        await remover.add(proxies(2))
        both = await remover.acquire(SITE, 2)
        for lease in both:
            await remover.release(lease)
        await remover._calls.everywhere("remove", keys=[both[0].proxy.key])  # and here he is killed
        refused = 0
        for _ in range(10):
            try:
                (lease,) = await other.acquire(SITE)
            except NoProxy as why:
                assert "was removed" in str(why)
                refused += 1
            else:
                assert lease.proxy == both[1].proxy
                await other.release(lease, [Outcome()])
        assert refused == 1
        await remover.close()
        await other.close()

    asyncio.run(whole())


def test_a_target_with_leases_is_not_lost_when_there_are_too_many(redis: Any) -> None:
    """It is the one that was used longest ago, and somebody has a proxy of it: it goes on hearing of proxies."""

    async def whole() -> None:
        name = token_hex(4)
        pool = await redis_pool(redis.url, name, print)
        await pool.add(proxies(1))
        (lease,) = await pool.acquire(SITE)
        with driver.Redis.from_url(redis.url) as client:
            client.zadd(f"lycosa:proxies:{{{name}}}:t", {f"{number}.example": 1e12 for number in range(TARGETS_MAX)})
        (another,) = await pool.acquire("b.example")
        known = await pool._calls.targets()
        assert {SITE, "b.example"} <= set(known)
        await pool.release(lease)
        await pool.release(another)
        await pool.close()

    asyncio.run(whole())


def test_who_gets_none_of_a_dead_pool_does_not_ask_for_all_of_it(redis: Any) -> None:
    """It may have a million, and everybody who asks hears why there is none."""

    async def whole() -> None:
        pool = await redis_pool(redis.url, token_hex(4), print)
        await pool.add(proxies(2), unchecked=True)
        asked, everywhere = [], pool._calls.everywhere

        def noted(command: str, **arguments: Any) -> Any:
            asked.append(command)
            return everywhere(command, **arguments)

        pool._calls.everywhere = noted
        with pytest.raises(NoProxy, match="none fits"):
            await pool.acquire(SITE)
        assert "look" not in asked
        await pool.close()

    asyncio.run(whole())


def test_who_asks_for_tags_that_others_have_given_a_proxy_is_told_them(redis: Any) -> None:
    async def whole() -> None:
        one, other = [await redis_pool(redis.url, name, print) for name in [token_hex(4)] * 2]
        await one.add([Proxy("http", "10.0.0.1", 1, tags={"country": "de"})])
        await other.add([Proxy("http", "10.0.0.1", 1, tags={"country": "fr"})])
        (lease,) = await one.acquire(SITE, request=ProxyRequest({"country": "fr"}), wait_s=10.0)
        assert lease.proxy.tags == {"country": "fr"}
        await one.close()
        await other.close()

    asyncio.run(whole())


def test_what_others_say_of_a_proxy_is_known_soon(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its price and its tags are those that another process has given it, also where it was lent before."""
    monkeypatch.setattr(refiller, "SEE_S", 0.0)

    async def story(pool: ProxyPool) -> None:
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease)
        other = await redis_pool(redis.url, NAME, print)
        (proxy,) = proxies(1)
        await other.add([replace(proxy, price_gb=4.5, tags={"country": "de"})])
        await other.close()
        (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
        assert (lease.proxy.price_gb, dict(lease.proxy.tags)) == (4.5, {"country": "de"})
        await pool.release(lease)

    play(redis, story, 1, NAME)


@pytest.mark.usefixtures("no_clock")
def test_many_are_removed_in_few_round_trips(redis: Any) -> None:
    async def story(pool: ProxyPool) -> None:
        await pool.release((await pool.acquire(SITE))[0])
        before = trips(redis)
        assert await pool.remove([each.key for each in proxies(100)]) == 100
        assert trips(redis) - before <= 3
        assert await pool.proxies(SITE) == []

    play(redis, story, 100)


@pytest.mark.parametrize("tags", [{}, {"country": "de"}])
def test_a_policy_with_more_members_fills_up(redis: Any, tags: dict[str, str]) -> None:
    """A program that is started again with another policy has the proxies that it says."""

    async def story() -> None:
        name = token_hex(4)
        for members in (2, 4, 3):
            pool = await redis_pool(redis.url, name, print, lambda _, members=members: TargetPolicy(members=members))
            if members == 2:
                await pool.add(replace(each, tags={"country": "de"}) for each in proxies(6))
            for _ in range(2):
                await pool.release((await pool.acquire(SITE, request=ProxyRequest(tags)))[0])
            lease = await pool.acquire(SITE, 4 if members > 2 else 2, ProxyRequest(tags), wait_s=LONG_S)
            for each in lease:
                await pool.release(each)
            assert len(await pool.proxies(SITE)) == (4 if members > 2 else 2)
            await pool.close()

    asyncio.run(story())
