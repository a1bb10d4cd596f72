"""The meta keys of the built-in middlewares and the fetcher, one crawl for each key (C1, C2, C5)."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from lycosa import Request, Response
from lycosa.http.core.curl_command import BadCurl
from tests.crawl.fetching.test_retry_and_redirect import Requesting
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import Server, running
from tests.servers.sins_engine import PASSWORD, USER

DELAY_S, LATE_S = 1.0, 0.5
"""A delay much longer than a request takes on a busy machine; and how late a request may reach the server, so that the
time to the next request seems shorter."""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def crawled(server: Server, *requests: Request, **settings: Any) -> CrawlResult:
    return asyncio.run(run_crawl(server, Requesting(requests=list(requests)), **settings))  # type: ignore[arg-type]


def starts(server: Server) -> list[float]:
    return [hit.at for hit in server.hits]


def test_download_timeout_limits_the_transfer(server):
    slow = server.url("/slow?ms=2000")
    for request in (Request(slow, timeout=0.1), Request(slow, meta={"download_timeout": 0.1})):
        assert crawled(server, request, retries=0).of("/slow?ms=2000") == ("dead", "timed out after 0.1 s")


def test_download_maxsize_limits_the_body(server):
    request = Request(server.url("/good"), meta={"download_maxsize": 10})
    assert crawled(server, request).of("/good") == ("dead", "body over 10 bytes")


def test_download_fail_on_dataloss_false_accepts_a_short_body(server):
    (item,) = crawled(server, Request(server.url("/short"), meta={"download_fail_on_dataloss": False})).items
    assert item["text"] == "only this"


def test_proxy_overrides_the_proxy_of_the_settings(server):
    request = Request("http://nowhere.invalid/good", proxy=server.url(""))
    assert len(crawled(server, request).items) == 1
    assert server.paths() == ["http://nowhere.invalid/good"]
    refused = Request(server.url("/good"), proxy="http://127.0.0.1:1")
    assert crawled(server, refused, retries=0, proxy=server.url("")).rows["/good"].state == "dead"
    direct = Request(server.url("/good"), meta={"proxy": ""})
    assert len(crawled(server, direct, proxy="http://127.0.0.1:1").items) == 1


def test_download_delay_delays_the_next_request_of_the_host(server):
    first = Request(server.url("/good?0"), delay=DELAY_S, priority=2)
    others = [Request(server.url(f"/good?{number}"), priority=1) for number in range(1, 4)]

    class Slow:
        async def process_request(self, request):
            if request.get_meta("download_delay"):
                await asyncio.sleep(0.2)

    for parts in ({}, {Slow: 5}):
        server.hits.clear()
        result = crawled(server, first, *others, downloader_middlewares=parts)
        waits = [after - before for before, after in itertools.pairwise(starts(server))]
        assert waits[0] >= DELAY_S - LATE_S
        assert min(waits[1:]) < DELAY_S - LATE_S
        assert result.stats["scheduler/dequeued"] <= 8, "waiting requests are not leased repeatedly"


def test_download_delay_is_at_least_that_of_the_crawl(server):
    requests = [Request(server.url(f"/good?{number}"), delay=0.01) for number in range(3)]
    crawled(server, *requests, delay=0.2)
    assert_paced(gaps_of(starts(server)), 0.2)


@pytest.mark.parametrize("delay", [-1, "2", 1e9, float("nan")])
def test_a_download_delay_that_is_not_a_number_of_seconds_is_refused(server, delay):
    request = Request(server.url("/good"), meta={"download_delay": delay})
    state, reason = crawled(server, request).of("/good")
    assert (state, reason[:24], server.hits) == ("dead", "download_delay in meta i", [])


def test_a_request_that_is_not_sent_delays_nothing(server):
    class Local:
        def process_request(self, request):
            return Response(request.url, 200)

    async def run() -> CrawlResult:
        async with asyncio.timeout(60):
            requests = [Request(server.url(f"/{number}"), delay=100) for number in range(3)]
            return await run_crawl(server, Requesting(requests=requests), downloader_middlewares={Local: 5})  # type: ignore[arg-type]

    assert len(asyncio.run(run()).items) == 3


def test_cookiejar_separates_cookies_and_dont_merge_cookies_sends_none(server):
    def identity(path: str, **options: Any) -> Request:
        return Request(server.url(f"/identity/{path}"), **options)

    class ReadsIdentity(Requesting):
        def parse(self, response):
            yield {"identity": response.css("title::text").get(), "jar": response.meta.get("cookiejar")}

    jars = ["ann", "bob", None]
    requests = [identity(f"{jar}/{number}", cookiejar=jar) for number in range(2) for jar in jars]
    result = asyncio.run(run_crawl(server, ReadsIdentity(requests=requests), concurrency=1))  # type: ignore[arg-type]
    found = {item["jar"]: item["identity"] for item in result.items}
    assert len(result.items) == 6
    assert len(set(found.values())) == 3
    assert sorted(item["identity"] for item in result.items) == sorted([*found.values()] * 2)
    alone = Request(server.url("/identity/alone"), meta={"dont_merge_cookies": True})
    assert crawled(server, alone).rows["/identity/alone"].reason == "redirect loop"


def test_a_cookie_header_is_sent_only_with_dont_merge_cookies(server):
    merged = Request(server.url("/show-cookies?1"), cookies={"a": "1"}, headers={"Cookie": "b=2"})
    unmerged = Request(server.url("/show-cookies?2"), headers={"Cookie": "b=2"}, meta={"dont_merge_cookies": True})
    items = crawled(server, merged, unmerged, concurrency=1).items
    assert sorted(item["text"] for item in items) == ['{"a": "1"}', '{"b": "2"}']


def test_handle_httpstatus_keys_and_settings_pass_a_404_to_the_callback(server):
    request = Request(server.url("/404"))
    assert crawled(server, request).items == []
    for meta in ({"handle_httpstatus_list": [404]}, {"handle_httpstatus_all": True}):
        assert crawled(server, request.replace(meta=meta)).items[0]["status"] == 404
    assert crawled(server, request, httperror_allowed=[404]).items[0]["status"] == 404
    assert crawled(server, request, httperror_allow_all=True).items[0]["status"] == 404

    class HandlesNotFound(Requesting):
        handle_httpstatus_list = (404,)

    assert asyncio.run(run_crawl(server, HandlesNotFound(requests=[request]))).items[0]["status"] == 404  # type: ignore[arg-type]


def test_dont_obey_robotstxt_fetches_a_forbidden_page(server):
    server.robots = "User-agent: *\nDisallow: /good"
    paths = ["/good?1", "/good?2", "/tree/1/0"]
    requests = [Request(server.url(path), errback="on_error") for path in paths]
    requests[1].meta["dont_obey_robotstxt"] = True
    result = crawled(server, *requests, robots=True)
    assert [result.rows[path].reason for path in paths] == ["robots", "200", "200"]
    assert [item for item in result.items if "failure" in item] == [{"failure": "IgnoreRequest"}]
    assert result.hits == {"/robots.txt": 1, "/good?2": 1, "/tree/1/0": 1}
    assert result.stats["robotstxt/forbidden"] == 1


def test_allow_offsite_lets_a_request_leave_the_domains(server):
    class OneDomain(Requesting):
        allowed_domains = ("example.com",)

        def parse(self, response):
            yield {"url": response.url}
            yield response.follow("/good?1")
            yield response.follow("/good?2", meta={"allow_offsite": True})

    result = asyncio.run(run_crawl(server, OneDomain(requests=[Request(server.url("/good"))])))  # type: ignore[arg-type]
    assert sorted(result.rows) == ["/good", "/good?2"]


def test_response_encoding_overrides_the_encoding_of_a_page(server):
    url = server.url("/wrong-charset")
    assert "これは" not in crawled(server, Request(url)).items[0]["text"]
    (item,) = crawled(server, Request(url, meta={"response_encoding": "shift_jis"})).items
    assert "これは" in item["text"]
    state, reason = crawled(server, Request(url, meta={"response_encoding": "klingon"})).of("/wrong-charset")
    assert (state, reason) == ("dead", "response_encoding in meta is 'klingon', which is not an encoding of Python")


def test_depth_priority_chooses_breadth_first_or_depth_first(server):
    class FollowsTwo(Requesting):
        def parse(self, response):
            yield {"depth": response.depth}
            for number in range(2):
                yield response.follow(f"/good?{response.url.partition('?')[2]}{number}")

    def depths(**settings: Any) -> list[int]:
        server.hits.clear()
        spider = FollowsTwo(requests=[Request(server.url("/good"))])  # type: ignore[arg-type]
        result = asyncio.run(run_crawl(server, spider, depth=3, concurrency=1, **settings))
        assert result.stats["request_depth_max"] >= 3
        return [len(path.partition("?")[2]) for path in server.paths()]

    broad, deep = depths(depth_priority=1), depths(depth_priority=-1)
    assert broad == [0, 1, 1, 2, 2, 2, 2, *[3] * 8]
    assert deep[:4] == [0, 1, 2, 3]
    assert sorted(deep) == sorted(broad)


def test_requests_with_long_urls_are_dropped(server):
    class FollowsLong(Requesting):
        def parse(self, response):
            yield {"url": response.url}
            if response.depth == 0:
                yield response.follow("/good?" + "x" * 100)
                yield response.follow("/good?" + "x" * 10)

    spider = FollowsLong(requests=[Request(server.url("/good"))])  # type: ignore[arg-type]
    result = asyncio.run(run_crawl(server, spider, max_url_length=60))
    assert (len(result.items), result.stats["urllength/request_ignored_count"]) == (2, 1)


def test_the_referer_is_sent_by_its_policy(server):
    class Linked(Requesting):
        def parse(self, response):
            if response.depth:
                yield {response.url: json.loads(response.text)["headers"].get("referer")}
            else:
                yield response.follow("/echo?1")
                yield response.follow("/echo?2", meta={"referrer_policy": "no-referrer"})
                yield response.follow("/echo?3", headers={"Referer": "http://mine.example/"})

    spider = Linked(requests=[Request(server.url("/good"))])  # type: ignore[arg-type]
    outcomes = {url: value for item in asyncio.run(run_crawl(server, spider)).items for url, value in item.items()}
    expected = {"/echo?1": server.url("/good"), "/echo?2": None, "/echo?3": "http://mine.example/"}
    assert outcomes == {server.url(path): value for path, value in expected.items()}


def test_http_credentials_are_sent_from_attributes_and_settings(server):
    class Authenticated(Requesting):
        http_user, http_pass, http_auth_domain = USER, PASSWORD, "127.0.0.1"

    request = Request(server.url("/basic"))
    assert asyncio.run(run_crawl(server, Authenticated(requests=[request]))).of("/basic") == ("done", "200")  # type: ignore[arg-type]
    assert crawled(server, request).of("/basic") == ("done", "401")
    by_settings = {"http_user": USER, "http_pass": PASSWORD, "http_auth_domain": "127.0.0.1"}
    assert crawled(server, request, **by_settings).of("/basic") == ("done", "200")


def test_a_replaying_cache_answers_every_repeated_request(server, tmp_path):
    settings = {"http_cache": "replay", "http_cache_dir": str(tmp_path)}
    paths = ["/good", "/404", "/redirect-good"]
    requests = [Request(server.url(path), dont_filter=True, meta={"handle_httpstatus_list": [404]}) for path in paths]
    first = crawled(server, *requests, **settings)
    second = crawled(server, *requests, **settings)
    assert sorted(first.hits) == sorted(paths)
    assert (second.hits, second.stats["httpcache/hit"]) == ({}, 4)
    assert sorted(item["text"] for item in second.items) == sorted(item["text"] for item in first.items)
    uncached = [request.replace(meta={**request.meta, "dont_cache": True}) for request in requests]
    assert crawled(server, *uncached, **settings).hits["/404"] == 1
    missing = crawled(server, Request(server.url("/index")), http_cache_ignore_missing=True, **settings)
    assert (missing.hits, missing.of("/index")) == ({}, ("done", "not in the cache"))


def test_the_cache_stores_responses_as_rfc_9111_allows(server, tmp_path):
    settings = {"http_cache": "rfc9111", "http_cache_dir": str(tmp_path)}
    fresh, stale, never = paths = [
        f"/cached?{query}" for query in ("control=max-age%3D60", "etag=x&control=no-cache", "control=no-store")
    ]
    requests = [Request(server.url(path)) for path in paths]
    crawled(server, *requests, **settings)
    second = crawled(server, *requests, **settings)
    assert len(second.items) == 3
    assert second.hits == {stale: 1, never: 1}
    assert server.hits[-1].headers.get("if-none-match") or server.hits[-2].headers.get("if-none-match")
    assert (second.stats["httpcache/hit"], second.stats["httpcache/revalidate"]) == (1, 1)
    assert fresh not in second.hits


def test_a_request_survives_the_conversion_to_curl_and_back(server):
    command = f"curl '{server.url('/echo')}' -H 'X-Mine: 1' -b 'a=1' --data-raw 'q=wolf' -m 5"
    request = Request.from_curl(command, callback="parse", priority=3)
    assert (request.priority, request.callback, request.meta) == (3, "parse", {"download_timeout": 5.0})
    converted = Request.from_curl(request.to_curl())
    (item,) = crawled(server, request).items
    (copy,) = crawled(server, converted).items
    echoed = json.loads(item["text"])
    assert (echoed["method"], bytes.fromhex(echoed["body"]), echoed["headers"]["cookie"]) == ("POST", b"q=wolf", "a=1")
    assert json.loads(copy["text"]) == echoed
    with pytest.raises(BadCurl, match="unknown curl option"):
        Request.from_curl("curl --verry http://a.example/")
    assert Request.from_curl("curl --verry http://a.example/", ignore_unknown_options=True).url == "http://a.example/"
