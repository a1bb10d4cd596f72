"""The meta keys of the built-in middlewares and the fetcher, one crawl for each key (C1, C2, C5; issue 4)."""

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
from tests.crawl.playing import Played, play
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import Server, running
from tests.servers.sins_engine import PASSWORD, USER

DELAY_S, LATE_S = 1.0, 0.5
"""A delay much longer than a request takes on a busy machine, and how much too early a request may seem to start."""


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def crawled(server: Server, *requests: Request, **settings: Any) -> Played:
    return asyncio.run(play(server, Requesting(requests=list(requests)), **settings))  # type: ignore[arg-type]


def starts(server: Server) -> list[float]:
    return [hit.at for hit in server.hits]


def test_download_timeout(server):
    slow = server.url("/slow?ms=2000")
    for request in (Request(slow, timeout=0.1), Request(slow, meta={"download_timeout": 0.1})):
        assert crawled(server, request, retries=0).of("/slow?ms=2000") == ("dead", "timed out after 0.1 s")


def test_download_maxsize(server):
    request = Request(server.url("/good"), meta={"download_maxsize": 10})
    assert crawled(server, request).of("/good") == ("dead", "body over 10 bytes")


def test_download_fail_on_dataloss(server):
    (item,) = crawled(server, Request(server.url("/short"), meta={"download_fail_on_dataloss": False})).items
    assert item["text"] == "only this"


def test_proxy(server):
    request = Request("http://nowhere.invalid/good", proxy=server.url(""))
    assert len(crawled(server, request).items) == 1
    assert server.paths() == ["http://nowhere.invalid/good"]
    there = Request(server.url("/good"), proxy="http://127.0.0.1:1")
    assert crawled(server, there, retries=0, proxy=server.url("")).rows["/good"].state == "dead"
    straight = Request(server.url("/good"), meta={"proxy": ""})
    assert len(crawled(server, straight, proxy="http://127.0.0.1:1").items) == 1


def test_download_delay_holds_for_any_next_request_of_the_host(server):
    first = Request(server.url("/good?0"), delay=DELAY_S, priority=2)
    others = [Request(server.url(f"/good?{number}"), priority=1) for number in range(1, 4)]

    class Slow:
        async def process_request(self, request):
            if request.get_meta("download_delay"):
                await asyncio.sleep(0.2)

    for parts in ({}, {Slow: 5}):
        server.hits.clear()
        played = crawled(server, first, *others, downloader_middlewares=parts)
        waits = [after - before for before, after in itertools.pairwise(starts(server))]
        assert waits[0] >= DELAY_S - LATE_S
        assert max(waits[1:]) < DELAY_S - LATE_S
        assert played.stats["scheduler/dequeued"] <= 8, "those that have to wait are not lent again and again"


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

    async def played() -> Played:
        async with asyncio.timeout(60):
            requests = [Request(server.url(f"/{number}"), delay=100) for number in range(3)]
            return await play(server, Requesting(requests=requests), downloader_middlewares={Local: 5})  # type: ignore[arg-type]

    assert len(asyncio.run(played()).items) == 3


def test_cookiejar_and_dont_merge_cookies(server):
    def who(path: str, **options: Any) -> Request:
        return Request(server.url(f"/identity/{path}"), **options)

    class Named(Requesting):
        def parse(self, response):
            yield {"who": response.css("title::text").get(), "jar": response.meta.get("cookiejar")}

    jars = ["ann", "bob", None]
    requests = [who(f"{jar}/{number}", cookiejar=jar) for number in range(2) for jar in jars]
    played = asyncio.run(play(server, Named(requests=requests), concurrency=1))  # type: ignore[arg-type]
    found = {item["jar"]: item["who"] for item in played.items}
    assert len(played.items) == 6
    assert len(set(found.values())) == 3
    assert sorted(item["who"] for item in played.items) == sorted([*found.values()] * 2)
    alone = Request(server.url("/identity/alone"), meta={"dont_merge_cookies": True})
    assert crawled(server, alone).rows["/identity/alone"].reason == "redirect loop"


def test_cookies_written_by_hand(server):
    merged = Request(server.url("/show-cookies?1"), cookies={"a": "1"}, headers={"Cookie": "b=2"})
    unmerged = Request(server.url("/show-cookies?2"), headers={"Cookie": "b=2"}, meta={"dont_merge_cookies": True})
    items = crawled(server, merged, unmerged, concurrency=1).items
    assert sorted(item["text"] for item in items) == ['{"a": "1"}', '{"b": "2"}']


def test_handle_httpstatus(server):
    request = Request(server.url("/404"))
    assert crawled(server, request).items == []
    for meta in ({"handle_httpstatus_list": [404]}, {"handle_httpstatus_all": True}):
        assert crawled(server, request.replace(meta=meta)).items[0]["status"] == 404
    assert crawled(server, request, httperror_allowed=[404]).items[0]["status"] == 404
    assert crawled(server, request, httperror_allow_all=True).items[0]["status"] == 404

    class Wants(Requesting):
        handle_httpstatus_list = (404,)

    assert asyncio.run(play(server, Wants(requests=[request]))).items[0]["status"] == 404  # type: ignore[arg-type]


def test_dont_obey_robotstxt(server):
    server.robots = "User-agent: *\nDisallow: /good"
    paths = ["/good?1", "/good?2", "/tree/1/0"]
    requests = [Request(server.url(path), errback="on_error") for path in paths]
    requests[1].meta["dont_obey_robotstxt"] = True
    played = crawled(server, *requests, robots=True)
    assert [played.rows[path].reason for path in paths] == ["robots", "200", "200"]
    assert [item for item in played.items if "failure" in item] == [{"failure": "IgnoreRequest"}]
    assert played.hits == {"/robots.txt": 1, "/good?2": 1, "/tree/1/0": 1}
    assert played.stats["robotstxt/forbidden"] == 1


def test_allow_offsite(server):
    class Here(Requesting):
        allowed_domains = ("example.com",)

        def parse(self, response):
            yield {"url": response.url}
            yield response.follow("/good?1")
            yield response.follow("/good?2", meta={"allow_offsite": True})

    played = asyncio.run(play(server, Here(requests=[Request(server.url("/good"))])))  # type: ignore[arg-type]
    assert sorted(played.rows) == ["/good", "/good?2"]


def test_response_encoding(server):
    url = server.url("/wrong-charset")
    assert "これは" not in crawled(server, Request(url)).items[0]["text"]
    (item,) = crawled(server, Request(url, meta={"response_encoding": "shift_jis"})).items
    assert "これは" in item["text"]
    state, reason = crawled(server, Request(url, meta={"response_encoding": "klingon"})).of("/wrong-charset")
    assert (state, reason) == ("dead", "response_encoding in meta is 'klingon', which Python does not know")


def test_depth_and_its_priority(server):
    class Down(Requesting):
        def parse(self, response):
            yield {"depth": response.depth}
            for number in range(2):
                yield response.follow(f"/good?{response.url.partition('?')[2]}{number}")

    def depths(**settings: Any) -> list[int]:
        server.hits.clear()
        spider = Down(requests=[Request(server.url("/good"))])  # type: ignore[arg-type]
        played = asyncio.run(play(server, spider, depth=3, concurrency=1, **settings))
        assert played.stats["request_depth_max"] >= 3
        return [len(path.partition("?")[2]) for path in server.paths()]

    broad, deep = depths(depth_priority=1), depths(depth_priority=-1)
    assert broad == [0, 1, 1, 2, 2, 2, 2, *[3] * 8]
    assert deep[:4] == [0, 1, 2, 3]
    assert sorted(deep) == sorted(broad)


def test_url_length(server):
    class Long(Requesting):
        def parse(self, response):
            yield {"url": response.url}
            if response.depth == 0:
                yield response.follow("/good?" + "x" * 100)
                yield response.follow("/good?" + "x" * 10)

    spider = Long(requests=[Request(server.url("/good"))])  # type: ignore[arg-type]
    played = asyncio.run(play(server, spider, max_url_length=60))
    assert (len(played.items), played.stats["urllength/request_ignored_count"]) == (2, 1)


def test_referer_and_its_policy(server):
    class Linked(Requesting):
        def parse(self, response):
            if response.depth:
                yield {response.url: json.loads(response.text)["headers"].get("referer")}
            else:
                yield response.follow("/echo?1")
                yield response.follow("/echo?2", meta={"referrer_policy": "no-referrer"})
                yield response.follow("/echo?3", headers={"Referer": "http://mine.example/"})

    spider = Linked(requests=[Request(server.url("/good"))])  # type: ignore[arg-type]
    outcomes = {url: value for item in asyncio.run(play(server, spider)).items for url, value in item.items()}
    expected = {"/echo?1": server.url("/good"), "/echo?2": None, "/echo?3": "http://mine.example/"}
    assert outcomes == {server.url(path): value for path, value in expected.items()}


def test_http_authentication(server):
    class Known(Requesting):
        http_user, http_pass, http_auth_domain = USER, PASSWORD, "127.0.0.1"

    request = Request(server.url("/basic"))
    assert asyncio.run(play(server, Known(requests=[request]))).of("/basic") == ("done", "200")  # type: ignore[arg-type]
    assert crawled(server, request).of("/basic") == ("done", "401")
    by_settings = {"http_user": USER, "http_pass": PASSWORD, "http_auth_domain": "127.0.0.1"}
    assert crawled(server, request, **by_settings).of("/basic") == ("done", "200")


def test_the_cache_replays(server, tmp_path):
    settings = {"http_cache": "replay", "http_cache_dir": str(tmp_path)}
    paths = ["/good", "/404", "/redirect-good"]
    requests = [Request(server.url(path), dont_filter=True, meta={"handle_httpstatus_list": [404]}) for path in paths]
    first = crawled(server, *requests, **settings)
    again = crawled(server, *requests, **settings)
    assert sorted(first.hits) == sorted(paths)
    assert (again.hits, again.stats["httpcache/hit"]) == ({}, 4)
    assert sorted(item["text"] for item in again.items) == sorted(item["text"] for item in first.items)
    uncached = [request.replace(meta={**request.meta, "dont_cache": True}) for request in requests]
    assert crawled(server, *uncached, **settings).hits["/404"] == 1
    missing = crawled(server, Request(server.url("/index")), http_cache_ignore_missing=True, **settings)
    assert (missing.hits, missing.of("/index")) == ({}, ("done", "not in the cache"))


def test_the_cache_stores_what_rfc_9111_allows(server, tmp_path):
    settings = {"http_cache": "rfc9111", "http_cache_dir": str(tmp_path)}
    fresh, stale, never = paths = [
        f"/cached?{query}" for query in ("control=max-age%3D60", "etag=x&control=no-cache", "control=no-store")
    ]
    requests = [Request(server.url(path)) for path in paths]
    crawled(server, *requests, **settings)
    again = crawled(server, *requests, **settings)
    assert len(again.items) == 3
    assert again.hits == {stale: 1, never: 1}
    assert server.hits[-1].headers.get("if-none-match") or server.hits[-2].headers.get("if-none-match")
    assert (again.stats["httpcache/hit"], again.stats["httpcache/revalidate"]) == (1, 1)
    assert fresh not in again.hits


def test_a_request_from_a_curl_command_and_back(server):
    command = f"curl '{server.url('/echo')}' -H 'X-Mine: 1' -b 'a=1' --data-raw 'q=wolf' -m 5"
    request = Request.from_curl(command, callback="parse", priority=3)
    assert (request.priority, request.callback, request.meta) == (3, "parse", {"download_timeout": 5.0})
    again = Request.from_curl(request.to_curl())
    (item,) = crawled(server, request).items
    (copy,) = crawled(server, again).items
    echoed = json.loads(item["text"])
    assert (echoed["method"], bytes.fromhex(echoed["body"]), echoed["headers"]["cookie"]) == ("POST", b"q=wolf", "a=1")
    assert json.loads(copy["text"]) == echoed
    with pytest.raises(BadCurl, match="unknown curl option"):
        Request.from_curl("curl --verry http://a.example/")
    assert Request.from_curl("curl --verry http://a.example/", ignore_unknown_options=True).url == "http://a.example/"
