"""Start requests that are read while the crawl runs (C3, F2): none is lost, however long there is no room for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.app.crawl import seeding


class Queue:
    """A `SeedQueue` that waits while it has no room."""

    def __init__(self) -> None:
        self.has_room, self.called = asyncio.Event(), asyncio.Event()
        self.pushed: list[int] = []
        self.has_room.set()

    async def segment_for(self, *_: Any) -> str:
        return ""

    async def push_seeds(self, seeds: list[int]) -> None:
        self.called.set()
        await self.has_room.wait()
        self.pushed += seeds


def test_seeding_is_done_only_when_the_last_requests_are_queued_even_if_start_has_ended(monkeypatch) -> None:
    async def run_scenario() -> None:
        queue, done = Queue(), asyncio.Event()

        async def start(*_: Any) -> AsyncIterator[int]:
            yield 1
            await queue.called.wait()
            queue.has_room.clear()
            queue.called.clear()
            yield 2
            await queue.called.wait()

        monkeypatch.setattr(seeding, "start_requests", start)
        monkeypatch.setattr(seeding, "to_record", lambda request, *_, **__: request)
        spec: Any = SimpleNamespace(spider=None, target=SimpleNamespace(naming=SimpleNamespace(spider="")))
        crawl: Any = SimpleNamespace(spiders=[spec])
        seeder = seeding.Seeder(crawl, {}, queue, required=True)  # type: ignore[arg-type]
        await seeder.start()
        seeder.on_done(done.set, pytest.fail)
        await queue.called.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        queue.has_room.set()
        await done.wait()
        assert queue.pushed == [1, 2]

    asyncio.run(run_scenario())
