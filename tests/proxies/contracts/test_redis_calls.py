"""The calls of a pool on Redis (P5): few round trips for many callers, which may be cancelled before the answer."""

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
from lycosa.proxies.redis.calls import BATCH_MAX, CallBatcher
from lycosa.proxies.redis.pool import ANSWER_MAX_S, WHY_MAX_S, redis_pool
from lycosa.proxies.redis.target_script import script_of
from tests.servers.children import suspend

pytestmark = pytest.mark.redis

SITE = "a.example"
NAME = token_hex(4)
LONG_S = 20.0


def proxies(count: int) -> list[Proxy]:
    return [Proxy("http", f"10.0.0.{number + 1}", 8080) for number in range(count)]


def run_scenario(server: Any, scenario: Callable[[ProxyPool], Awaitable[None]], count: int, name: str = "") -> None:
    async def run() -> None:
        pool = await redis_pool(server.url, name or token_hex(4), print)
        await pool.add(proxies(count))
        try:
            await scenario(pool)
        finally:
            await pool.close()

    asyncio.run(run())


def trips(server: Any) -> int:
    """Return how many scripts were run."""
    with driver.Redis.from_url(server.url) as client:
        found: dict[str, dict[str, int]] = client.info("commandstats")  # type: ignore[assignment]
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("eval", "evalsha"))


@pytest.fixture
def no_timed_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable timed calls: on a busy machine there are more of them."""
    monkeypatch.setattr(outcome_reporter, "FLUSH_S", 10 * LONG_S)
    monkeypatch.setattr(refiller, "REFRESH_S", 10 * LONG_S)


@pytest.mark.usefixtures("no_timed_calls")
def test_many_callers_take_few_round_trips(redis: Any) -> None:
    async def scenario(pool: ProxyPool) -> None:
        (first,) = await pool.acquire(SITE)  # refills the target
        await pool.release(first)
        before = trips(redis)
        leases = [each for (each,) in await asyncio.gather(*(pool.acquire(SITE) for _ in range(100)))]
        assert len({each.proxy.key for each in leases}) == 100
        assert all(await asyncio.gather(*(pool.release(each, [Outcome()]) for each in leases)))
        assert trips(redis) - before <= 2 * ceil(100 / BATCH_MAX)

    run_scenario(redis, scenario, 100)


def test_a_second_round_trip_starts_only_when_a_batch_is_full() -> None:
    """The server executes one batch while the process handles the answers to the other."""
    call = script_of(TargetPolicy()).state()

    async def scenario() -> None:
        sent: list[int] = []
        proceed = asyncio.Semaphore(0)

        async def run(calls: Sequence[Any]) -> list[Any]:
            sent.append(len(calls))
            await proceed.acquire()
            return list(range(len(calls)))

        batcher = CallBatcher(run, lambda: sent.append(-1))
        answers = [batcher.add([call])]
        await run_callbacks()
        answers += [batcher.add([call] * 5) for _ in range(BATCH_MAX // 5)]
        await run_callbacks()
        assert sent == [1], "a batch that is not full waits for the first one"
        answers += [batcher.add([call] * 5) for _ in range(20)]
        await run_callbacks()
        assert sent[0] == 1
        assert len(sent) == 2
        assert BATCH_MAX <= sent[1] < BATCH_MAX + 5, "calls made together stay together"
        for _ in range(20):
            proceed.release()
        async with asyncio.timeout(LONG_S):
            results = await asyncio.gather(*answers)
            await batcher.finished
        assert {len(each) for each in results[1:]} == {5}
        assert results[0] == [0]
        assert sent[-1] == -1
        assert sent.count(-1) == 1

    asyncio.run(scenario())


async def run_callbacks() -> None:
    """Let all tasks run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.mark.usefixtures("no_timed_calls")
def test_the_number_of_round_trips_does_not_depend_on_the_number_of_waiting_callers(redis: Any) -> None:
    """One proxy for 60 callers: a release is one round trip, and the next lease another, however many wait."""

    async def scenario(pool: ProxyPool) -> None:
        async def one() -> None:
            (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
            await pool.release(lease, [Outcome()])

        await one()
        before = trips(redis)
        await asyncio.gather(*(one() for _ in range(60)))
        assert trips(redis) - before <= 60 * 3

    run_scenario(redis, scenario, 1)


def test_a_caller_that_does_not_wait_fails_at_once_even_if_others_wait(redis: Any) -> None:
    async def scenario(pool: ProxyPool) -> None:
        (lease,) = await pool.acquire(SITE)
        waiting = [asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S)) for _ in range(5)]
        pair = asyncio.create_task(pool.acquire(SITE, 2, wait_s=LONG_S))
        await asyncio.sleep(0.05)
        async with asyncio.timeout(LONG_S / 2):
            with pytest.raises(NoProxy, match="1 leased"):
                await pool.acquire(SITE)
            with pytest.raises(NoProxy, match="1 leased"):
                await pool.acquire(SITE, request=ProxyRequest(session="s"))
        for task in waiting:
            await pool.release(lease)
            (lease,) = await task
        pair.cancel()

    run_scenario(redis, scenario, 1)


def test_a_frozen_server_is_named_in_the_error_after_the_wait(redis: Any) -> None:
    async def scenario(pool: ProxyPool) -> None:
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease)
        suspend(redis.process.pid)
        started_at = time.monotonic()
        try:
            waits = [
                pool.acquire(SITE),
                pool.acquire(SITE, wait_s=1.0),
                pool.acquire(SITE, request=ProxyRequest(session="s")),
            ]
            errors = await asyncio.gather(*waits, return_exceptions=True)
        finally:
            redis.process.send_signal(signal.SIGCONT)
        assert [str(each) for each in errors] == 3 * [f"no proxy for {SITE}: the pool's server does not answer"]
        assert time.monotonic() - started_at < ANSWER_MAX_S + WHY_MAX_S + 10.0
        assert len(await pool.acquire(SITE, wait_s=LONG_S)) == 1, "the callers that gave up have no lease"

    run_scenario(redis, scenario, 1)


def test_a_call_is_completed_even_if_its_caller_is_cancelled(redis: Any) -> None:
    async def scenario(pool: ProxyPool) -> None:
        for _ in range(20):
            (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
            releasing = asyncio.create_task(pool.release(lease, [Outcome()]))
            await asyncio.sleep(0)
            releasing.cancel()
            acquiring = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
            await asyncio.sleep(0)
            acquiring.cancel()
            await asyncio.wait([releasing, acquiring])
        assert len(await pool.acquire(SITE, wait_s=LONG_S)) == 1, "neither the release nor the lease is lost"
        (view,) = await pool.targets()
        assert (view.leases, view.leaked) == (1, 0)

    run_scenario(redis, scenario, 1)


def test_a_proxy_whose_removal_was_interrupted_by_a_kill_is_not_leased(redis: Any) -> None:
    """The pool has removed the proxy, its target has not: the first caller that draws the proxy corrects the target."""

    async def scenario() -> None:
        remover, other = [await redis_pool(redis.url, name, print) for name in [token_hex(4)] * 2]
        await remover.add(proxies(2))
        both = await remover.acquire(SITE, 2)
        for lease in both:
            await remover.release(lease)
        await remover._calls.call_pool(
            "remove", keys=[both[0].proxy.key]
        )  # the process is killed before it updates the target
        refused = 0
        for _ in range(10):
            try:
                (lease,) = await other.acquire(SITE)
            except NoProxy as error:
                assert "has just been removed" in str(error)
                refused += 1
            else:
                assert lease.proxy == both[1].proxy
                await other.release(lease, [Outcome()])
        assert refused == 1
        await remover.close()
        await other.close()

    asyncio.run(scenario())


def test_a_target_with_leases_is_kept_even_if_there_are_too_many_targets(redis: Any) -> None:
    """The target is the least recently used one, but one of its proxies is leased, so it still learns of changes."""

    async def scenario() -> None:
        name = token_hex(4)
        pool = await redis_pool(redis.url, name, print)
        await pool.add(proxies(1))
        (lease,) = await pool.acquire(SITE)
        with driver.Redis.from_url(redis.url) as client:
            client.zadd(f"lycosa:proxies:{{{name}}}:t", {f"{number}.example": 1e12 for number in range(TARGETS_MAX)})
        (other,) = await pool.acquire("b.example")
        known = await pool._calls.targets()
        assert {SITE, "b.example"} <= set(known)
        await pool.release(lease)
        await pool.release(other)
        await pool.close()

    asyncio.run(scenario())


def test_the_reason_for_an_error_is_found_without_reading_the_whole_pool(redis: Any) -> None:
    """The pool may have a million dead proxies, and each error names the reason."""

    async def scenario() -> None:
        pool = await redis_pool(redis.url, token_hex(4), print)
        await pool.add(proxies(2), unchecked=True)
        commands, call_pool = [], pool._calls.call_pool

        def recorded(command: str, **arguments: Any) -> Any:
            commands.append(command)
            return call_pool(command, **arguments)

        pool._calls.call_pool = recorded
        with pytest.raises(NoProxy, match="none fits"):
            await pool.acquire(SITE)
        assert "list" not in commands
        await pool.close()

    asyncio.run(scenario())


def test_a_lease_has_the_tags_that_another_process_has_set(redis: Any) -> None:
    async def scenario() -> None:
        one, other = [await redis_pool(redis.url, name, print) for name in [token_hex(4)] * 2]
        await one.add([Proxy("http", "10.0.0.1", 1, tags={"country": "de"})])
        await other.add([Proxy("http", "10.0.0.1", 1, tags={"country": "fr"})])
        (lease,) = await one.acquire(SITE, request=ProxyRequest({"country": "fr"}), wait_s=10.0)
        assert lease.proxy.tags == {"country": "fr"}
        await one.close()
        await other.close()

    asyncio.run(scenario())


def test_changes_by_another_process_are_known_after_a_refresh(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that leased the proxy before gets the price and tags that another process has set."""
    monkeypatch.setattr(refiller, "REFRESH_S", 0.0)

    async def scenario(pool: ProxyPool) -> None:
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease)
        other = await redis_pool(redis.url, NAME, print)
        (proxy,) = proxies(1)
        await other.add([replace(proxy, price_gb=4.5, tags={"country": "de"})])
        await other.close()
        (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
        assert (lease.proxy.price_gb, dict(lease.proxy.tags)) == (4.5, {"country": "de"})
        await pool.release(lease)

    run_scenario(redis, scenario, 1, NAME)


@pytest.mark.usefixtures("no_timed_calls")
def test_many_proxies_are_removed_in_few_round_trips(redis: Any) -> None:
    async def scenario(pool: ProxyPool) -> None:
        await pool.release((await pool.acquire(SITE))[0])
        before = trips(redis)
        assert await pool.remove([each.key for each in proxies(100)]) == 100
        assert trips(redis) - before <= 3
        assert await pool.proxies(SITE) == []

    run_scenario(redis, scenario, 100)


@pytest.mark.parametrize("tags", [{}, {"country": "de"}])
def test_a_policy_with_more_members_refills_the_target(redis: Any, tags: dict[str, str]) -> None:
    """After a restart with a policy of more members, the target has as many; a policy of fewer members removes none."""

    async def scenario() -> None:
        name = token_hex(4)
        for members in (2, 4, 3):
            pool = await redis_pool(redis.url, name, print, lambda _, members=members: TargetPolicy(members=members))
            if members == 2:
                await pool.add(replace(each, tags={"country": "de"}) for each in proxies(6))
            for _ in range(2):
                await pool.release((await pool.acquire(SITE, request=ProxyRequest(tags)))[0])
            leases = await pool.acquire(SITE, 4 if members > 2 else 2, ProxyRequest(tags), wait_s=LONG_S)
            for each in leases:
                await pool.release(each)
            assert len(await pool.proxies(SITE)) == (4 if members > 2 else 2)
            await pool.close()

    asyncio.run(scenario())
