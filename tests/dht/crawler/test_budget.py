"""Budgets per minute, on the clock of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine

from lycosa.dht.crawler.budget import Budget
from tests.virtual import VirtualLoop


def run_virtually(main: Coroutine[None, None, None]) -> None:
    """Run in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(main)


def test_a_sixth_of_the_budget_of_a_minute_is_available_at_once_and_the_rest_is_spread() -> None:
    async def run() -> None:
        budget = Budget(1200)
        clock = asyncio.get_running_loop().time
        started = clock()
        assert all([await budget.take() for _ in range(200)])
        assert clock() == started
        await asyncio.gather(*(budget.take() for _ in range(10)))
        assert clock() - started >= 10 / 20 - 0.05

    run_virtually(run())


def test_a_task_that_would_wait_too_long_is_refused_at_once() -> None:
    async def run() -> None:
        budget = Budget(60)
        for _ in range(10):
            assert budget.take_now()
        assert not budget.take_now()
        waiting = [asyncio.create_task(budget.take()) for _ in range(3)]
        await asyncio.sleep(0)
        assert budget.is_used_up
        assert not await budget.take(max_wait_s=2.0)
        for task in waiting:
            task.cancel()
        await asyncio.wait(waiting)
        assert not budget.is_used_up

    run_virtually(run())


def test_an_unused_take_can_be_put_back() -> None:
    async def run() -> None:
        budget = Budget(1)
        assert budget.take_now()
        assert not budget.take_now()
        budget.put_back()
        assert budget.take_now()

    run_virtually(run())
