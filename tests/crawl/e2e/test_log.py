"""The log of a crawl: what is enabled, a line for each request, the counts at the end; as text or JSON (C1)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lycosa.core.units import format_count
from tests.cli.command import lycosa
from tests.servers.tree import grow

PAGES = 40
SPIDER = """
from lycosa import Spider
class Clean:
    def process_item(self, item):
        return item
class Clock:
    def process_request(self, request):
        return None
class Quotes(Spider):
    name = "quotes"
    start_urls = ["{url}"]
    allowed_domains = ["127.0.0.1"]
    custom_settings = {{"concurrency": 7, "downloader_middlewares": {{Clock: 1}}}}
    pipelines = [Clean]
    def parse(self, response):
        self.logger.info("seen", extra={{"url": response.url, "product": 7}})
        yield {{"url": response.url}}
        yield from response.follow_all(css="a")
"""


def logged(cwd: Path, *options: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Crawl a tree of pages. Return the lines of its log in JSON, and the URLs of the pages."""
    with grow(PAGES) as tree:
        (cwd / "quotes.py").write_text(SPIDER.format(url=tree.url))
        log = ("--log-json", "--log-file", "my.log", "--no-robots", *options)
        done = lycosa("runspider", "quotes.py", "-o", "items.jsonl", *log, cwd=cwd)
        assert done.returncode == 0, done.stderr
        urls = tree.urls()
    return [json.loads(line) for line in (cwd / "my.log").read_text().splitlines()], list(urls)


def test_each_page_is_a_json_line_with_url_status_and_spider_also_from_worker_processes(tmp_path: Path) -> None:
    lines, urls = logged(tmp_path, "-L", "DEBUG", "--processes", "2")
    assert_counts_and_parts(lines, "2 processes")
    crawled = [line for line in lines if line["message"].startswith("Crawled (200) <GET ")]
    assert sorted(line["url"] for line in crawled) == sorted(urls)
    assert {(line["status"], line["spider"], line["level"]) for line in crawled} == {(200, "quotes", "DEBUG")}
    assert all(line["time"] and line["logger"].startswith("lycosa.") for line in crawled)
    seen = [line for line in lines if line["message"] == "seen"]
    assert sorted(line["url"] for line in seen) == sorted(urls)
    assert {line["product"] for line in seen} == {7}


def test_the_log_says_what_is_enabled_and_the_counts_at_the_end(tmp_path: Path) -> None:
    lines, _ = logged(tmp_path, "-L", "INFO")
    assert_counts_and_parts(lines, "1 process")
    assert not [line for line in lines if line["message"].startswith("Crawled")]


def assert_counts_and_parts(lines: list[dict[str, Any]], processes: str) -> None:
    texts = [line["message"] for line in lines]
    (start,) = [line for line in lines if line["message"].startswith("crawl quotes: ")]
    how = f"a crawl on this machine, {processes}, callbacks on the event loop, 7 requests at a time"
    assert how in start["message"]
    assert start["spiders"] == ["quotes"]
    assert texts.count("enabled pipelines of spider quotes: Clean") == 1
    (middlewares,) = [text for text in texts if text.startswith("enabled downloader middlewares: ")]
    assert "Retry, MetaRefresh, Redirect" in middlewares
    assert "Clock" in middlewares, "the middlewares of the user too"
    (end,) = [line for line in lines if line["message"].startswith("closed (finished): ")]
    assert (end["requests"], end["successes"], end["reason"]) == (PAGES, PAGES, "finished")
    assert end["duplicates"] > 0
    assert end["elapsed_s"] > 0
    duplicates = format_count(end["duplicates"], "duplicate")
    assert f": {PAGES} requests, {duplicates}, {PAGES} successes in " in end["message"]
