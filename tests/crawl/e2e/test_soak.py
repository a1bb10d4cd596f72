"""A crawl takes no more memory after a million pages than after a hundred thousand (C1, C10; issue 4, `make prove`).

nginx answers from its own memory, with a new cookie each time. Every hundred pages are a host of their own, with a
robots.txt, a redirect and a 404; the URLs have query strings; a page leads to ten others, one of them in one of a
thousand cookie jars. The spider notes the anonymous memory of its process as it goes.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median
from textwrap import dedent

import pytest

from tests.cli.command import lycosa
from tests.conftest import PROVE
from tests.servers.nginx import serve

PAGES = 1_000_000
SAMPLES = 100
FLAT_AFTER = 0.1
"""The part of the crawl in which memory may grow: caches fill, the allocator settles."""

SLACK, SLACK_MB = 1.10, 10
END_MAX_S = 3600.0

SITE = """
    location = /page { add_header Set-Cookie "seen=$request_id; Path=/"; default_type text/html; return 200
        "<!doctype html><title>small</title><p>$arg_n</p><p>Enough for a page, and hardly more than that.</p>"; }
    location = /moved { return 302 /page?n=$arg_n; }
    location = /gone { return 404 "gone"; }
"""

SPIDER = """
    from pathlib import Path
    from lycosa import Request, Spider

    class Small(Spider):
        name = "small"
        pages = every = port = ""

        async def start(self):
            yield Request(self.url_of(0), cb_kwargs={"n": 0})

        def parse(self, response, n):
            self.state["count"] = count = self.state.get("count", 0) + 1
            if count % int(self.every) == 0:
                self.note(count)
            yield {"n": n, "title": response.css("title::text").get(), "status": response.status}
            for child in range(10 * n + 1, min(10 * n + 11, int(self.pages))):
                meta = {"cookiejar": child // 100 % 1000} if child % 10 == 0 else None
                yield Request(self.url_of(child), cb_kwargs={"n": child}, errback=self.gone, meta=meta)

        def gone(self, failure):
            return self.parse(failure.response, failure.request.cb_kwargs["n"])

        def url_of(self, n):
            what = {1: "moved", 2: "gone"}.get(n % 100, "page")
            return f"http://h{n // 100}.localhost:{self.port}/{what}?n={n}&shelf={n % 7}"

        def note(self, count):
            held = next(line.split()[1] for line in Path("/proc/self/status").open() if line.startswith("RssAnon"))
            with Path("memory").open("a") as file:
                file.write(f"{count} {held}\\n")
"""


def grown(home: Path, pages: int) -> tuple[float, float]:
    """Crawl this many pages. Return the anonymous memory (MB) when it should be flat, and its maximum afterwards."""
    (home / "spider.py").write_text(dedent(SPIDER))
    (home / "site").mkdir()
    with serve(home / "site", log=False, extra=SITE) as server:
        arguments = {"port": server.url.rpartition(":")[2], "pages": pages, "every": pages // SAMPLES}
        options = [part for name, value in arguments.items() for part in ("-a", f"{name}={value}")]
        wide = ("--concurrency-per-host", 64, "-q", "-o", "items.jsonl")
        done = lycosa("runspider", "spider.py", *options, *wide, cwd=home, timeout_s=END_MAX_S)
    assert done.returncode == 0, done.stderr
    with (home / "items.jsonl").open("rb") as file:
        assert sum(1 for _ in file) == pages
    held = [int(line.split()[1]) / 1024 for line in (home / "memory").read_text().splitlines()]
    first = round(len(held) * FLAT_AFTER)
    print("MB:", *(f"{number / SAMPLES:.0%} {held[number]:.0f}" for number in range(0, len(held), 9)))
    return median(held[first - 2 : first + 3]), max(held[first:])


@pytest.mark.nginx
def test_memory_is_bounded_in_a_small_crawl(tmp_path):
    """The same with few pages, before most caches are full: a leak of two kilobytes per page shows."""
    before, after = grown(tmp_path, 10_000)
    assert after <= before + 12


@pytest.mark.prove
@pytest.mark.nginx
@pytest.mark.skipif(not PROVE, reason="make prove")
def test_a_million_pages_take_no_more_memory_than_a_hundred_thousand(tmp_path):
    before, after = grown(tmp_path, PAGES)
    print(f"{before:.0f} MB after {PAGES * FLAT_AFTER:,.0f} pages, {after:.0f} MB at most afterwards")
    assert after <= before * SLACK + SLACK_MB
