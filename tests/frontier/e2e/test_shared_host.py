"""Several workers on one big site: each fetches its part (C3, C5)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from textwrap import dedent

import pytest

from tests.frontier.e2e.test_shared_crawl import crawl, running_items
from tests.queues.e2e.members import wait_until

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES, WORKERS = 1_000, 3
SPIDER = """
    import asyncio
    from pathlib import Path
    from lycosa import Request, Spider

    class OneHost(Spider):
        name = "onehost"
        pages = port = hosts = ""

        async def start(self):
            yield Request(f"http://127.0.0.1:{self.port}/page?n=0", cb_kwargs={"n": 0})

        async def parse(self, response, n):
            if n == 0:
                while not Path("go").exists():
                    await asyncio.sleep(0.02)
                for child in range(1, int(self.pages)):
                    yield Request(f"http://127.0.0.1:{self.port}/page?n={child}", cb_kwargs={"n": child})
            await asyncio.sleep(0.2)
            yield {"n": n}
"""


def test_workers_on_one_host_share_its_pages(tmp_path: Path, redis) -> None:
    with crawl(tmp_path, redis.url, pages=PAGES) as running:
        (tmp_path / "spider.py").write_text(dedent(SPIDER))
        for number in range(WORKERS):
            running.start(number)
        wait_until(lambda: all((tmp_path / f"state{number}" / "worker").exists() for number in range(WORKERS)))
        (tmp_path / "go").touch()  # all of them have joined
        running.wait()
        assert running.items() == Counter(range(PAGES))
        parts = [len(running_items(tmp_path, f"{number}.jsonl")) for number in range(WORKERS)]
    print(f"{parts} pages")
    assert min(parts) >= PAGES // 10, "equal parts, unless the machine is busy"
