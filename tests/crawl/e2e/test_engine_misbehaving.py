"""One crawl of every misbehaving page with all parts of the engine: it ends, with a reason for each URL (C2, C7).

The crawl uses cookies, the HTTP cache, auto-throttle, meta refresh, referrers, and all spider and downloader
middlewares. All tests run with callbacks on the loop, and again with callbacks in threads. The results of the URLs are
read from the frontier.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.cli.command import items, lycosa
from tests.crawl.e2e.test_misbehaving import DEAD as FATAL
from tests.servers.charsets import CHARSETS
from tests.servers.misbehaving import running
from tests.servers.sins import SINS

END_MAX_S = 300.0
SPIDER = """
from pathlib import Path
from lycosa import Request, Spider

class Brave(Spider):
    name = "brave"
    allowed_domains = ["127.0.0.1"]
    custom_settings = {
        "COOKIES_ENABLED": True, "COOKIES_DEBUG": True, "HTTPCACHE_ENABLED": True, "HTTPCACHE_POLICY": "rfc9111",
        "AUTOTHROTTLE_ENABLED": True, "AUTOTHROTTLE_START_DELAY": 0.001, "AUTOTHROTTLE_MAX_DELAY": 0.02,
        "AUTOTHROTTLE_TARGET_CONCURRENCY": 32, "METAREFRESH_ENABLED": True, "REFERER_ENABLED": True,
        "ROBOTSTXT_OBEY": True, "DEPTH_LIMIT": 1, "URLLENGTH_LIMIT": 2083, "DOWNLOAD_TIMEOUT": 20, "RETRY_TIMES": 1,
        "DOWNLOAD_MAXSIZE": 1_000_000, "CONCURRENT_REQUESTS_PER_DOMAIN": 64, "LOG_LEVEL": "DEBUG", "LOG_FILE": "log",
        "backoff_base": 0.01, "HTTPAUTH_USER": "ada", "HTTPAUTH_PASS": "count&compute", "HTTPAUTH_DOMAIN": "127.0.0.1",
    }

    async def start(self):
        for number, url in enumerate(Path("urls").read_text().splitlines()):
            timeout = 1 if any(word in url for word in ("hang", "drip")) else 20
            yield Request(url, timeout=timeout, meta={"cookiejar": number % 3} if number % 2 else None)

    def parse(self, response):
        yield {"url": response.request.meta.get("redirect_urls", [response.url])[0], "status": response.status,
               "title": response.css("title::text").get() if "html" in response.content_type else response.text[:20]}
        for request in list(response.follow_all(css="a"))[:20] if "html" in response.content_type else []:
            yield request.replace(callback=self.parse_more, errback=self.failed)

    def parse_more(self, response):
        pass

    def failed(self, failure):
        yield {"failed": failure.request.url, "why": repr(failure.value)}
"""
VARIANTS = {
    "/503-date": ["/503-date?after=1"],
    "/charset": [f"/charset/{name}" for name in CHARSETS],
    "/coded": [f"/coded/{how}" for how in ("gzip", "deflate", "raw-deflate", "br", "twice", "wrong", "none", "cut")],
    "/drops": ["/drops/1"],
    "/flaky": ["/flaky/1", "/flaky/9"],
    "/image": [f"/image/{name}" for name in ("1.png", "2.jpg", "cut.png", "fake.png", "bomb.png", "missing.png")],
    "/meta-refresh": [f"/meta-refresh{way}" for way in ("", "/loop", "/noscript", "/comment")],
    "/overloaded": ["/overloaded?most=0"],
    "/redirects": ["/redirects/301-302-303-307-308"],
    "/set-cookies": ["/set-cookies?line=a%3D1%3B+Domain%3Dcom&line=b&line=%3D&line=c%3D%01&line=%F6%3D%F6"],
    "/shop": ["/shop/10"],
    "/site": ["/site/5"],
    "/tree": ["/tree/5/0"],
}
"""Misbehaving pages with several variants."""

DEAD = {
    **{path: reason for path, (reason, _) in FATAL.items()},
    "/503": "503",
    "/flaky/9": "500",
    "/overloaded": "429",
    "/redirect-chain/20": "more than 20 redirects",
    "/redirect-self": "redirect loop",
    "/video": "body over 1000000 bytes",
}
"""For each path, the reason why its URL is dead."""

DONE = {
    **{f"/{status}": str(status) for status in (204, 304, 401, 403, 404, 410)},
    "/image/missing.png": "404",
    "/missing": "404",
    "/redirect-bad": "redirect without a valid Location",
    "/redirect-nowhere": "redirect without a valid Location",
    "/redirect-out": "redirect out of scope",
}
REDIRECTED = re.compile(r"/(redirect-(loop|good|chain|to)|account|redirects|meta-refresh)(?![^/])")
"""Start URLs that redirect."""


class CrawlResult(NamedTuple):
    """The end of the crawl, and the frontier row of each URL, by path and query."""

    code: int
    stderr: str
    log: str
    items: list[dict[str, Any]]
    rows: dict[str, dict[str, Any]]
    hits: int
    hits_of_second_run: int


def targets() -> list[str]:
    return [target for path in SINS for target in VARIANTS.get(path, [path])]


def run(home: Path, mode: str) -> tuple[int, str]:
    options = ("-o", "items.jsonl", "--state", "state", "-s", f"callback_mode={mode}")
    done = lycosa("runspider", "spider.py", *options, cwd=home, timeout_s=END_MAX_S)
    assert done.stdout == ""
    return done.returncode, done.stderr


def rows(home: Path) -> dict[str, dict[str, Any]]:
    """Return the row of each URL; for a URL that redirected to itself, return the last one of its rows."""
    listed = lycosa("frontier", "list", "--limit", 0, "--json", "--state", "state", cwd=home)
    found = [json.loads(line) for line in listed.stdout.splitlines()]
    return {path_of(row["url"]): row for row in found}


def path_of(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


@pytest.fixture(scope="module", params=["loop", "thread"])
def result(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CrawlResult:
    home = tmp_path_factory.mktemp("brave")
    with running(host="127.0.0.2") as other, running(out=other.url("/good")) as server:
        (home / "spider.py").write_text(SPIDER)
        (home / "urls").write_text("\n".join(map(server.url, targets())))
        code, stderr = run(home, request.param)
        hits = len(server.hits)
        second_code, _ = run(home, request.param)
        assert (second_code, other.hits) == (code, [])
        log = (home / "log").read_text(errors="replace")
        return CrawlResult(code, stderr, log, items(home / "items.jsonl"), rows(home), hits, len(server.hits) - hits)


def test_the_crawl_ends_with_a_proper_summary(result: CrawlResult) -> None:
    assert result.code == 1, result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" not in result.log
    assert re.search(r"^finished: \d+ pages", result.stderr, re.MULTILINE), result.stderr
    assert "hint: " in result.stderr, "a start URL redirects out of the scope"


def test_every_url_is_done_or_dead(result: CrawlResult) -> None:
    assert {row["state"] for row in result.rows.values()} == {"done", "dead"}
    assert {path_of(target) for target in targets()} <= {path_of("http://x" + path) for path in result.rows}


def test_each_dead_url_has_the_expected_reason(result: CrawlResult) -> None:
    dead = {path.partition("?")[0]: row["reason"] for path, row in result.rows.items() if row["state"] == "dead"}
    # A server that closes a connection before it has read the request to its end resets the connection.
    assert dead == DEAD | ({"/drop": "connection lost"} if dead["/drop"] == "connection lost" else {})


def test_each_done_url_has_the_expected_reason(result: CrawlResult) -> None:
    for target in targets():
        path, row = target.partition("?")[0], result.rows[target]
        if path in DEAD:
            continue
        expected = DONE.get(path) or ("redirect" if REDIRECTED.match(path) else "200")
        if path in {"/meta-refresh/loop", "/meta-refresh/noscript", "/meta-refresh/comment"}:
            expected = "200"
        assert row["reason"] == expected, target


def test_links_are_followed_within_depth_and_scope_only(result: CrawlResult) -> None:
    assert {row["depth"] for row in result.rows.values()} == {0, 1}
    assert {urlsplit(row["url"]).hostname for row in result.rows.values()} == {"127.0.0.1"}
    longest = max(len(row["url"]) for row in result.rows.values())
    assert 2000 <= longest <= 2083


def test_every_page_is_one_item_and_failures_go_to_the_errback(result: CrawlResult) -> None:
    pages = Counter(path_of(item["url"]) for item in result.items if "url" in item)
    assert set(pages.values()) == {1}
    fetched = {path for path, row in result.rows.items() if row["reason"] in {"200", "204"} and not row["depth"]}
    assert len(pages) == len(fetched)
    failed = [item for item in result.items if "failed" in item]
    assert {item["why"] for item in failed} == {"HttpError('404')"}


def test_a_second_run_requests_nothing(result: CrawlResult) -> None:
    assert result.hits > len(result.rows)
    assert result.hits_of_second_run == 0
