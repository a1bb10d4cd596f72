"""The processes of one crawl, from its beginning to its end (C5, F8): one that is to start while it ends does not."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

from lycosa.app.crawl import workers
from lycosa.config import Settings
from lycosa.crawl.workers.remote import AllCookies
from lycosa.infra.clock import Clock

OWNED: Any = SimpleNamespace(clock=Clock(), cookies=AllCookies())


def test_a_crawl_that_ends_waits_for_no_process_that_was_about_to_start(monkeypatch) -> None:
    """It would never hear that the crawl is over, and the crawl would wait for its end for ever."""

    def sleeper(handle: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], pass_fds=[handle])

    monkeypatch.setattr(workers, "_started", sleeper)

    async def story() -> None:
        asked, kept = asyncio.Event(), asyncio.Event()

        async def keep() -> None:
            asked.set()
            await kept.wait()

        task = workers.Task([Settings(processes=2)], [], {}, [], "", "", logging.WARNING)
        crawl = workers.Processes(task, OWNED, keep)
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
