"""What uses say of proxies on its way to a server: the latency arrives, and nothing is lost at the end (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.redis.outcome_reporter import EACH_MAX, Hearing

LONG_S = 20.0


def test_what_goes_on_through_a_connection_does_not_push_out_how_long_it_took() -> None:
    told: list[Mapping[str, Any]] = []

    async def tell(heard: Mapping[str, Any]) -> None:
        told.append(heard)

    async def story() -> None:
        hearing = Hearing(tell, lambda: 0.5)
        await hearing.hear("k", [Outcome(latency_s=0.3)])
        for _ in range(3 * EACH_MAX):
            await hearing.hear("k", [Outcome()])
        await hearing.close()

    asyncio.run(story())
    (heard,) = told
    latencies = [each.latency_s for each in heard["k"]["outcomes"]]
    assert latencies == [0.3] + EACH_MAX * [None], "bounded, and in order"


def test_the_end_waits_for_what_is_being_told() -> None:
    told: list[str] = []

    async def story() -> None:
        begun, goes_on = asyncio.Event(), asyncio.Event()

        async def tell(heard: Mapping[str, Any]) -> None:
            begun.set()
            await goes_on.wait()
            told.extend(heard)

        async with asyncio.timeout(LONG_S):
            hearing = Hearing(tell, lambda: 0.5)
            await hearing.hear("first", [Outcome(latency_s=0.3)])
            await begun.wait()
            closing = asyncio.create_task(hearing.close())
            await asyncio.wait([closing], timeout=0.01)
            goes_on.set()
            await closing
            assert told == ["first"], "who closes goes on when the server has it"

    asyncio.run(story())
