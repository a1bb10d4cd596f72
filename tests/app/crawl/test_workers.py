"""The worker processes of a crawl (C5, F8): a worker does not start while the crawl ends."""

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


def test_a_crawl_that_ends_waits_for_no_process_that_was_about_to_start(monkeypatch) -> None:
    """It would never be told that the crawl is over, and the crawl would wait for ever for its end."""

    def sleeper(handle: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[handle])

    monkeypatch.setattr(workers, "_start_process", sleeper)

    async def story() -> None:
        asked, kept = asyncio.Event(), asyncio.Event()

        async def keep() -> None:
            asked.set()
            await kept.wait()

        task = workers.WorkerTask([Settings(processes=2)], [], {}, [], "", "", logging.WARNING)
        crawl = workers.WorkerProcesses(task, CRAWL, keep)
        starting = asyncio.create_task(crawl.start(""))
        try:
            await asked.wait()
            ending = asyncio.create_task(crawl.end("finished"))
            await asyncio.sleep(0)
            kept.set()
            await asyncio.wait_for(ending, 30.0)
        finally:
            starting.cancel()
            await crawl.close()

    asyncio.run(story())
