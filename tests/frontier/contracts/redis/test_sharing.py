"""Workers share the places of a host when each of them wants more leases than there are places (C3, C5)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import replace
from secrets import token_hex
from typing import Any

import pytest

from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import PLAIN, run, url
from tests.frontier.simulated import simulated_frontier

pytestmark = pytest.mark.redis

START_S, STEP_S = 1000.0, 0.005


async def shares(redis: Any, places: int, eagerness: dict[str, int]) -> Counter[str]:
    """Let workers fetch the pages of one host. Return how many pages each worker fetched.

    A worker asks for 64 leases `eagerness` times a step, and each of its transfers takes a step.
    """
    name, rng, policy = token_hex(8), random.Random(1), replace(PLAIN, concurrency_per_host=places)
    pages = min(1_000, 300 * places)
    workers = {
        worker: await simulated_frontier(LooplessClient(redis.url), name, policy, START_S, worker=worker)
        for worker in eagerness
    }
    now, done, held = START_S, Counter[str](), {worker: [] for worker in workers}
    await workers["a"].push([url(n) for n in range(pages)])
    while done.total() < pages:
        now += STEP_S
        assert now < START_S + 60.0, done
        turns = [worker for worker, turns in eagerness.items() for _ in range(turns)]
        rng.shuffle(turns)
        in_flight: list[Any] = [each for leases in held.values() for each in leases]
        assert len(in_flight) <= places
        for worker in turns:
            for lease in held[worker]:
                assert await workers[worker].ack(lease, "200", [], now)
                done[worker] += 1
            held[worker] = await workers[worker].lease(64, now)
    await asyncio.gather(*(frontier.close() for frontier in workers.values()))
    return done


@pytest.mark.parametrize("places", [1, 8, 30])
def test_equal_workers_have_equal_parts_of_one_host(redis, places: int) -> None:
    async def scenario() -> None:
        done = await shares(redis, places, dict.fromkeys("abc", 1))
        assert max(done.values()) <= 1.2 * min(done[worker] for worker in "abc"), done

    run(scenario())


@pytest.mark.parametrize("places", [1, 8])
def test_slow_worker_is_not_left_out(redis, places: int) -> None:
    async def scenario() -> None:
        done = await shares(redis, places, {"a": 4, "b": 1, "c": 2})
        assert min(done[worker] for worker in "abc") >= done.total() / 8, done

    run(scenario())


def test_worker_alone_has_all_places(redis) -> None:
    async def scenario() -> None:
        frontier = await simulated_frontier(LooplessClient(redis.url), token_hex(8), PLAIN, 0.0)
        await frontier.push([url(n) for n in range(100)])
        first = await frontier.lease(64, 0.0)
        assert len(first) == min(64, PLAIN.concurrency_per_host)
        await frontier.close()

    run(scenario())
