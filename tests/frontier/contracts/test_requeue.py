"""Queueing records again by their fingerprints, of which every frontier of one process is capable."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lycosa.frontier.core.model import Selection, UrlRecord
from lycosa.frontier.core.states import Policy, State
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations

NOW = 1_000.0
HOST = "dht:"
POLICY = Policy(robots=False)
BACK_ENDS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: memory_frontier(POLICY),
    "embedded": lambda path: embedded_frontier(path, POLICY),
}


@pytest.mark.parametrize("back_end", BACK_ENDS)
def test_only_records_that_ended_are_queued_again(back_end: str, tmp_path: Path) -> None:
    async def run() -> None:
        frontier = BACK_ENDS[back_end](tmp_path)
        records = [UrlRecord(1, number, f"dht:{number:040x}", HOST) for number in range(1, 6)]
        await frontier.push(records)
        done, dead, retried, _ = await frontier.lease(4, NOW)
        await frontier.ack(done, "fetched", (), NOW)
        await frontier.nack(dead, "hopeless", None, NOW)
        await frontier.nack(retried, "later", NOW + 60, NOW)
        assert await frontier.requeue([each.fingerprint for each in records] + [99]) == 2
        assert await frontier.requeue([done.record.fingerprint]) == 0
        found, _ = await LocalOperations(frontier).rows(Selection(), "", 10)
        states = {row.record.fingerprint: (row.state, row.record.attempts) for row in found}
        assert states == {
            1: (State.QUEUED, 0),
            2: (State.QUEUED, 0),
            3: (State.RETRY, 1),
            4: (State.LEASED, 0),
            5: (State.QUEUED, 0),
        }
        assert {each.record.fingerprint for each in await frontier.lease(10, NOW)} == {1, 2, 5}
        stats = await frontier.stats()
        assert (stats.done, stats.dead, dict(stats.reasons), dict(stats.dead_reasons)) == (0, 0, {}, {})
        await frontier.close()

    asyncio.run(run())


def test_a_requeue_survives_a_crash_only_if_it_was_committed(tmp_path: Path) -> None:
    async def run() -> None:
        frontier = embedded_frontier(tmp_path, POLICY)
        await frontier.push([UrlRecord(1, number, f"dht:{number:040x}", HOST) for number in (1, 2)])
        for lease in await frontier.lease(2, NOW):
            await frontier.ack(lease, "fetched", (), NOW)
        await frontier.commit({})
        frontier.store.checkpoint()
        assert await frontier.requeue([1]) == 1
        await frontier.commit({})
        assert await frontier.requeue([2]) == 1
        await frontier.close()  # as a crash: what was not committed is lost
        again = embedded_frontier(tmp_path, POLICY)
        assert [each.record.fingerprint for each in await again.lease(10, NOW)] == [1]
        assert not LocalOperations(again)._store.verify(lambda _: None)
        await again.close()

    asyncio.run(run())
