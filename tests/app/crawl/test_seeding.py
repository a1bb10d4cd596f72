"""Start requests that are read while the crawl runs (C3, F2): none is lost, however long there is no room for them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.app.crawl import seeding


class Run:
    """Takes what there is room for."""

    def __init__(self) -> None:
        self.room, self.asked = asyncio.Event(), asyncio.Event()
        self.taken: list[int] = []
        self.room.set()

    async def begin(self, *_: Any) -> str:
        return ""

    async def take(self, seeds: list[int]) -> None:
        self.asked.set()
        await self.room.wait()
        self.taken += seeds


def test_a_start_that_is_over_while_there_is_no_room_waits_for_its_last_requests(monkeypatch) -> None:
    async def story() -> None:
        run, over = Run(), asyncio.Event()

        async def start(*_: Any) -> AsyncIterator[int]:
            yield 1
            await run.asked.wait()
            run.room.clear()
            run.asked.clear()
            yield 2
            await run.asked.wait()

        monkeypatch.setattr(seeding, "start_requests", start)
        monkeypatch.setattr(seeding, "to_record", lambda request, *_, **__: request)
        member: Any = SimpleNamespace(spider=None, target=SimpleNamespace(naming=SimpleNamespace(spider="")))
        crew: Any = SimpleNamespace(members=[member])
        reading = seeding.Seeding(crew, {}, run, needed=True)  # type: ignore[arg-type]
        await reading.begin()
        reading.then(over.set, pytest.fail)
        await run.asked.wait()
        for _ in range(10):
            await asyncio.sleep(0)
        run.room.set()
        await over.wait()
        assert run.taken == [1, 2]

    asyncio.run(story())
