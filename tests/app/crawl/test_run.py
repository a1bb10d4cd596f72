"""How a crawl is run again after its worker was removed from a shared crawl (C3, F8)."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.crawl import run
from lycosa.app.crawl.crawl_run import CrawlRun
from lycosa.app.crawl.spec import crawl_spec
from lycosa.config import Settings
from lycosa.core.errors import WorkerLost
from lycosa.crawl.engine import run_segments


@pytest.mark.parametrize("removed", [0, 1, 3])
def test_a_worker_that_rejoins_does_not_queue_dead_urls_again(tmp_path: Path, monkeypatch, removed: int) -> None:
    """The worker queued dead URLs when it first joined. URLs that died later had all their attempts in this run."""
    runs, retries = [], []
    open_frontier = run.open_frontier

    async def open_shared(*arguments: Any, rejoins: bool) -> Any:
        return replace(await open_frontier(*arguments), rejoined=rejoins)

    async def lose_worker(*_: Any, **__: Any) -> None:
        runs.append(1)
        if len(runs) <= removed:
            raise WorkerLost("this worker was removed")

    async def count_retries(*_: Any) -> int:
        retries.append(len(runs))
        return 0

    monkeypatch.setattr(run, "open_frontier", open_shared)
    monkeypatch.setattr(run_segments, "retry_dead", count_retries)
    monkeypatch.setattr(CrawlRun, "run", lose_worker)
    settings = Settings(state=str(tmp_path / "state"), retry_dead=True)
    asyncio.run(run.run_worker(crawl_spec(settings, ["http://127.0.0.1:9/"])))
    assert (len(runs), retries) == (removed + 1, [0])
