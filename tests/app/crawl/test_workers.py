"""The worker processes of a crawl (C5, F8): no worker starts while the crawl ends."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from lycosa.app.crawl import workers
from lycosa.config import Settings
from lycosa.crawl.workers.remote import CookieBroadcast
from lycosa.infra.clock import Clock

CRAWL: Any = SimpleNamespace(clock=Clock(), cookies=CookieBroadcast())


def test_a_crawl_that_ends_does_not_wait_for_a_worker_about_to_start(monkeypatch) -> None:
    """A worker that started now would miss the message that closes the crawl, and the crawl would wait for the end of
    this worker for ever.
    """

    def sleeper(handle: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[handle])

    monkeypatch.setattr(workers, "_start_process", sleeper)

    async def run_scenario() -> None:
        saving, saved = asyncio.Event(), asyncio.Event()

        async def save() -> None:
            saving.set()
            await saved.wait()

        task = workers.WorkerTask([Settings(processes=2)], [], {}, [], "", "", logging.WARNING)
        crawl = workers.WorkerProcesses(task, CRAWL, save)
        starting = asyncio.create_task(crawl.start("", 0.0))
        try:
            await saving.wait()
            ending = asyncio.create_task(crawl.end("finished"))
            await asyncio.sleep(0)
            saved.set()
            await asyncio.wait_for(ending, 30.0)
        finally:
            starting.cancel()
            await crawl.close()

    asyncio.run(run_scenario())
