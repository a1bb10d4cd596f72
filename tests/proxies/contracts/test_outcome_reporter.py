"""Reports of outcomes to a server: latencies arrive, and none is lost at the end (P1)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.redis.outcome_reporter import OUTCOMES_MAX, OutcomeReporter

LONG_S = 20.0


def test_many_outcomes_without_latency_do_not_displace_one_with_latency() -> None:
    sent: list[Mapping[str, Any]] = []

    async def send(reports: Mapping[str, Any]) -> None:
        sent.append(reports)

    async def main() -> None:
        reporter = OutcomeReporter(send, lambda: 0.5)
        await reporter.record("k", [Outcome(latency_s=0.3)])
        for _ in range(3 * OUTCOMES_MAX):
            await reporter.record("k", [Outcome()])
        await reporter.close()

    asyncio.run(main())
    (reports,) = sent
    latencies = [each.latency_s for each in reports["k"]["outcomes"]]
    assert latencies == [0.3] + OUTCOMES_MAX * [None], "a limited number, in order"


def test_close_waits_until_the_outcomes_are_sent() -> None:
    sent: list[str] = []

    async def main() -> None:
        started, proceed = asyncio.Event(), asyncio.Event()

        async def send(reports: Mapping[str, Any]) -> None:
            started.set()
            await proceed.wait()
            sent.extend(reports)

        async with asyncio.timeout(LONG_S):
            reporter = OutcomeReporter(send, lambda: 0.5)
            await reporter.record("first", [Outcome(latency_s=0.3)])
            await started.wait()
            closing = asyncio.create_task(reporter.close())
            await asyncio.wait([closing], timeout=0.01)
            proceed.set()
            await closing
            assert sent == ["first"]

    asyncio.run(main())
