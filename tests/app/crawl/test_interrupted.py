"""A crawl that is cancelled during its shutdown still closes its parts in order, and none that is in use (C1)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from lycosa.app import search
from lycosa.app.crawl.run import crawl
from lycosa.app.crawl.spec import crawl_spec
from lycosa.config import load
from lycosa.search.core.results import Document
from tests.servers.tree import grow


class Index:
    """Calls `on_commit` in each commit, and records whether it was closed meanwhile."""

    fields: Mapping[str, Sequence[str]] = {}

    def __init__(self, on_commit: Callable[[], None]) -> None:
        self._on_commit = on_commit
        self._is_committing = False
        self.closed: list[str] = []

    def positions(self) -> dict[str, int]:
        return {}

    def add(self, documents: Sequence[Document]) -> None:
        pass

    def commit(self, positions: Mapping[str, int]) -> None:
        self._is_committing = True
        self._on_commit()
        self._is_committing = False

    def close(self) -> None:
        self.closed.append("in the middle of a commit" if self._is_committing else "well")


def test_a_second_interrupt_does_not_close_an_index_during_a_commit(tmp_path: Path, monkeypatch) -> None:
    """A second Ctrl-C arrives when the crawl is over and its last items are being indexed."""
    options = {"output": str(tmp_path / "items.jsonl"), "index": "index", "state": str(tmp_path / "state")}
    settings = load({**options, "robots": False}, environ={}, folder=tmp_path)
    finished = threading.Event()

    async def run_scenario(url: str) -> Index:
        loop, crawling = asyncio.get_running_loop(), asyncio.create_task(crawl(crawl_spec(settings, [url])))

        def cancel() -> None:
            loop.call_soon_threadsafe(crawling.cancel)
            finished.wait(1.0)  # long enough for the crawl to close the index, if it does not wait

        index = Index(cancel)
        monkeypatch.setattr(search, "open_index", lambda *_, **__: index)
        with pytest.raises(asyncio.CancelledError):
            await crawling
        finished.set()
        return index

    with grow(1) as tree:
        assert asyncio.run(run_scenario(tree.url)).closed == ["well"]
