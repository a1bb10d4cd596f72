"""A crawl that is cancelled while it closes what it has: in order, and nothing is closed that is still in use (C1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from lycosa.app import search
from lycosa.app.crawl.run import crawl
from lycosa.app.crawl.spec import crew_of
from lycosa.config import load
from lycosa.search.core.results import Document
from tests.servers.tree import grow


class Index:
    """Commits for as long as a test wants, and notes whether it was closed meanwhile."""

    def __init__(self, committing: Callable[[], None]) -> None:
        self._committing = committing
        self._at_work = False
        self.closed: list[str] = []

    def positions(self) -> dict[str, int]:
        return {}

    def add(self, documents: Sequence[Document]) -> None:
        pass

    def commit(self, positions: Mapping[str, int]) -> None:
        self._at_work = True
        self._committing()
        self._at_work = False

    def close(self) -> None:
        self.closed.append("in the middle of a commit" if self._at_work else "well")


def test_the_second_interrupt_does_not_close_an_index_that_is_being_written(tmp_path: Path, monkeypatch) -> None:
    """As Ctrl-C does that comes when the crawl is over, and its last items are being indexed."""
    said = {"output": str(tmp_path / "items.jsonl"), "index": "index", "state": str(tmp_path / "state")}
    settings = load({**said, "robots": False}, environ={}, folder=tmp_path)
    over = threading.Event()

    async def story(url: str) -> Index:
        loop, crawling = asyncio.get_running_loop(), asyncio.create_task(crawl(crew_of(settings, [url])))

        def committing() -> None:
            loop.call_soon_threadsafe(crawling.cancel)
            over.wait(1.0)  # time enough to go on without waiting

        index = Index(committing)
        monkeypatch.setattr(search, "open_index", lambda *_, **__: index)
        with pytest.raises(asyncio.CancelledError):
            await crawling
        over.set()
        return index

    with grow(1) as tree:
        assert asyncio.run(story(tree.url)).closed == ["well"]
