"""Inline fetches of several workers from one host share one queue and the delay of the host (C5, C6, F8)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from statistics import median
from textwrap import dedent

import pytest

from tests.frontier.e2e.test_shared_crawl import crawl
from tests.pace import assert_paced, gaps_of
from tests.queues.e2e.members import wait_until

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES = 40
DELAY_S = 0.15
WORKERS = 2
OPTIONS = ("--delay", str(DELAY_S), "--concurrency", "8")
INLINE = 1000
"""What is fetched inline for page n has the number INLINE + n."""

SPIDER = """
    import asyncio
    from pathlib import Path
    from lycosa import Request, Spider

    class Small(Spider):
        name = "small"
        pages = port = hosts = ""

        async def start(self):
            while Path("wait").exists():
                await asyncio.sleep(0.02)
            for n in range({pages}):
                yield Request(f"http://h{{n % 30}}.localhost:{{self.port}}/page?n={{n}}", cb_kwargs={{"n": n}})

        async def parse(self, response, n):
            found = await self.fetch(f"http://one.localhost:{{self.port}}/page?n={{{inline} + n}}")
            yield {{"n": n, "found": found.status}}
"""


def test_inline_fetches_of_several_workers_keep_the_delay_of_their_host(tmp_path: Path, redis) -> None:
    with crawl(tmp_path, redis.url, *OPTIONS) as running:
        (tmp_path / "spider.py").write_text(dedent(SPIDER.format(pages=PAGES, inline=INLINE)))
        with running.together(WORKERS):
            for number in range(WORKERS):
                running.start(number)
        running.wait()
        assert running.items() == Counter(range(PAGES))
        shares = [len((tmp_path / f"{number}.jsonl").read_text().splitlines()) for number in range(WORKERS)]
        starts = sorted(time_s for time_s, page in running.requests() if page >= INLINE)
    assert len(starts) == PAGES
    assert min(shares) > PAGES // 10, "each worker fetches some"
    gaps = gaps_of(starts)
    print(f"gaps {min(gaps):.3f} ... {max(gaps):.3f} s, {(starts[-1] - starts[0]) / (PAGES - 1):.3f} on average")
    assert_paced(gaps, DELAY_S)
    assert median(gaps) <= 2 * DELAY_S, "the host is idle too long"


def test_a_killed_worker_leaves_no_claim_behind(tmp_path: Path, redis) -> None:
    with crawl(tmp_path, redis.url, *OPTIONS) as running:
        (tmp_path / "spider.py").write_text(dedent(SPIDER.format(pages=PAGES, inline=INLINE)))
        for number in range(WORKERS):
            running.start(number)
        wait_until(lambda: any(file.stat().st_size for file in tmp_path.glob("*.jsonl")))
        running.kill(0)
        running.start(0)
        running.wait()
        assert running.items() == Counter(range(PAGES))
        starts = sorted(time_s for time_s, page in running.requests() if page >= INLINE)
    assert_paced(gaps_of(starts), DELAY_S)
