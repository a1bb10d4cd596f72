"""Requests that may leave the domains of their spider; settings that pass error statuses to callbacks (C2, C7)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from msgspec.structs import replace

from lycosa.app.request_rules import scope_of
from lycosa.config import Settings
from lycosa.crawl.engine.records import to_record, to_request
from lycosa.crawl.middlewares.offsite import Offsite
from lycosa.crawl.spiders.spider import Spider, domains_as_urls
from lycosa.http.core.request import Request
from tests.cli.command import items, lycosa
from tests.servers.misbehaving import Server, running


@pytest.fixture
def site() -> Iterator[Server]:
    with running() as server:
        yield server


@pytest.fixture
def other() -> Iterator[Server]:
    with running(host="127.0.0.2") as server:
        yield server


def crawl(home: Path, spider: str, *options: object) -> str:
    (home / "spider.py").write_text("from lycosa import Request, Spider\n" + dedent(spider))
    done = lycosa("runspider", "spider.py", "-o", "items.jsonl", "--no-robots", *options, cwd=home)
    assert "Traceback" not in done.stderr
    return done.stderr


def test_allow_offsite_lifts_the_domains_but_not_the_depth(site: Server, other: Server, tmp_path: Path) -> None:
    spider = f"""
    class Wide(Spider):
        name = "wide"
        start_urls = ["{site.url("/good")}"]
        allowed_domains = ["127.0.0.1"]
        custom_settings = {{"DEPTH_LIMIT": 1}}
        def parse(self, response):
            yield Request("{other.url("/good?no")}", self.further)
            yield Request("{other.url("/good?dont_filter")}", self.further, dont_filter=True)
            yield Request("{other.url("/good?allow_offsite")}", self.further, meta={{"allow_offsite": True}})
            yield Request("{other.url("/redirect-to?url=/good?redirected")}", self.further, dont_filter=True)
        def further(self, response):
            yield Request("{other.url("/good?too-deep")}", dont_filter=True, meta={{"allow_offsite": True}})
    """
    stderr = crawl(tmp_path, spider)
    expected = ["/good?allow_offsite", "/good?dont_filter", "/good?redirected", "/redirect-to?url=/good?redirected"]
    assert sorted(other.paths()) == expected
    assert "skipped 4 links (depth: 3, scope: 1)" in stderr


def test_a_redirect_that_skips_the_filter_stays_in_the_domains() -> None:
    """A redirect to the same URL with a new cookie skips the duplicate filter, but not the scope."""

    class Page(Spider):
        name = "page"

    scope = scope_of("", [], domains_as_urls(["a.example"]), Settings())
    record = replace(to_record(Request("http://b.example/"), Page()), depth=1, dont_filter=True)
    assert Offsite(scope).process_request(to_request(record)) is not None


@pytest.mark.parametrize(
    ("settings", "statuses"),
    [
        ("", {"/good": 200}),
        ('"HTTPERROR_ALLOW_ALL": True', {"/good": 200, "/404": 404, "/500": 500, "/redirect-nowhere": 302}),
        ('"HTTPERROR_ALLOWED_CODES": [302, 404]', {"/good": 200, "/404": 404, "/redirect-nowhere": 302}),
    ],
)
def test_settings_pass_error_statuses_to_callbacks_and_redirects_are_still_followed(
    site: Server, tmp_path: Path, settings: str, statuses: dict[str, int]
) -> None:
    starts = [site.url(path) for path in ("/404", "/500", "/redirect-good", "/redirect-nowhere")]
    spider = f"""
    class Statuses(Spider):
        name = "statuses"
        start_urls = {json.dumps(starts)}
        custom_settings = {{"RETRY_TIMES": 0, {settings}}}
        def parse(self, response):
            yield {{"path": response.url.removeprefix("{site.url("")}"), "status": response.status}}
    """
    crawl(tmp_path, spider)
    assert {item["path"]: item["status"] for item in items(tmp_path / "items.jsonl")} == statuses
