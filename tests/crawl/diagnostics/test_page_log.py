"""A line for each request at level DEBUG, in the words of Scrapy (C1, C9)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lycosa import DropItem, Request, Spider
from lycosa.crawl.diagnostics import page_log
from tests.crawl.small_crawl import run_crawl
from tests.servers.misbehaving import Server, running

PREFIXES = ("Crawled", "Redirecting", "Retrying", "Gave up", "Ignored", "Filtered", "Scraped", "dropped")


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Pages(Spider):
    """A page, a duplicate of it, a redirect, a failure, and a request out of scope."""

    name = "pages"

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.urls = [server.url(path) for path in ("/good", "/redirect-good?x", "/503")]
        self.allowed_domains = ["127.0.0.1"]

    async def start(self) -> Any:
        for url in self.urls:
            yield Request(url)

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        yield {"url": ""}
        yield Request(response.url)
        yield Request("http://elsewhere.example/")


class DropEmpty:
    def process_item(self, item: Any) -> Any:
        if not item["url"]:
            raise DropItem("no url")
        return item


def lines_of(caplog: pytest.LogCaptureFixture, server: Server) -> list[str]:
    """Return the lines on requests, without the address of the server."""
    return [
        each.getMessage().replace(server.url(""), "")
        for each in caplog.records
        if each.getMessage().startswith(PREFIXES)
    ]


def test_each_request_is_a_line(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lycosa")
    asyncio.run(run_crawl(server, Pages(server), pipelines=[DropEmpty], log_level="DEBUG", http_cache="off"))
    lines = lines_of(caplog, server)
    for line in (
        "Crawled (200) <GET /good> (referer: None)",
        "Scraped from <200 /good>: 1 item",
        "dropped: no url",
        "Filtered duplicate request: <GET /good>",
        "Filtered request (scope): <GET http://elsewhere.example/>",
        "Retrying <GET /503> (failed 1 times): 503",
        "Gave up <GET /503> (failed 2 times): 503",
    ):
        assert lines.count(line) >= 1, (line, lines)
    assert "Redirecting (302) to <GET /good> from <GET /redirect-good?x>" in lines
    (crawled,) = [each for each in caplog.records if each.getMessage().endswith("/good> (referer: None)")]
    assert vars(crawled)["url"] == server.url("/good")
    assert (vars(crawled)["status"], vars(crawled)["spider"]) == (200, "pages")


def test_no_line_for_a_request_is_logged_above_debug(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lycosa")
    asyncio.run(run_crawl(server, Pages(server), log_level="INFO"))
    assert not [line for line in lines_of(caplog, server) if not line.startswith("dropped")]


def test_a_log_without_lines_for_requests_costs_hardly_any_time(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lycosa")
    started = time.thread_time()
    assert not any(page_log.is_enabled() for _ in range(10_000))
    assert time.thread_time() - started < 1.0
