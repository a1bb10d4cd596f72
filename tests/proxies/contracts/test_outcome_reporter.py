"""Outcomes on their way to a server: latencies arrive, and none is lost at the end (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.redis.outcome_reporter import OUTCOMES_MAX, OutcomeReporter

LONG_S = 20.0


def test_requests_on_a_connection_do_not_push_out_its_latency() -> None:
    sent: list[Mapping[str, Any]] = []

    async def send(reports: Mapping[str, Any]) -> None:
        sent.append(reports)

    async def story() -> None:
        reporter = OutcomeReporter(send, lambda: 0.5)
        await reporter.record("k", [Outcome(latency_s=0.3)])
        for _ in range(3 * OUTCOMES_MAX):
            await reporter.record("k", [Outcome()])
        await reporter.close()

    asyncio.run(story())
    (reports,) = sent
    latencies = [each.latency_s for each in reports["k"]["outcomes"]]
    assert latencies == [0.3] + OUTCOMES_MAX * [None], "bounded, and in order"


def test_close_waits_until_the_server_has_the_outcomes() -> None:
    sent: list[str] = []

    async def story() -> None:
        begun, proceed = asyncio.Event(), asyncio.Event()

        async def send(reports: Mapping[str, Any]) -> None:
            begun.set()
            await proceed.wait()
            sent.extend(reports)

        async with asyncio.timeout(LONG_S):
            reporter = OutcomeReporter(send, lambda: 0.5)
            await reporter.record("first", [Outcome(latency_s=0.3)])
            await begun.wait()
            closing = asyncio.create_task(reporter.close())
            await asyncio.wait([closing], timeout=0.01)
            proceed.set()
            await closing
            assert sent == ["first"]

    asyncio.run(story())
