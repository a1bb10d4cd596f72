"""Retries and redirects through the engine, as the server sees them (C1, C2, C8): backoff, Retry-After, statuses, the
number of tries; redirect chains, loops, methods, cookies, and the credentials that other hosts do not get.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from lycosa import Request, RetryRequest, Spider
from tests.crawl.small_crawl import CrawlResult, run_crawl
from tests.servers.misbehaving import Server, running, serving


@pytest.fixture
def server() -> Iterator[Server]:
    with running() as server:
        yield server


class Requesting(Spider):
    """Yields its requests. Its items describe the responses and failures."""

    name = "requesting"
    requests: list[Request] = []

    async def start(self):
        for request in self.requests:
            yield request

    def parse(self, response):
        yield {"status": response.status, "text": response.text, "meta": response.meta}

    def on_error(self, failure):
        yield {"failure": type(failure.value).__name__}


def crawled(server: Server, *requests: Request, **settings: Any) -> CrawlResult:
    return asyncio.run(run_crawl(server, Requesting(requests=list(requests)), **settings))  # type: ignore[arg-type]


def gaps(server: Server, path: str) -> list[float]:
    """Return the seconds between the requests for a target."""
    at = [hit.at for hit in server.hits if hit.target == path]
    return [after - before for before, after in itertools.pairwise(at)]


TRIES = 5
"""Crawls of which one has no late retry, and none together: a busy machine may pause a crawl for half a second."""


def test_backoff_doubles_and_half_of_it_is_random(server):
    spreads = list[float]()
    for attempt in range(TRIES):
        paths = [f"/flaky/2?{attempt}-{number}" for number in range(8)]
        requests = [Request(server.url(path)) for path in paths]
        result = crawled(server, *requests, retries=2, backoff_base=0.2, max_backoff=0.3, concurrency_per_host=8)
        assert len(result.items) == 8
        assert (result.stats["retry/count"], result.stats["retry/reason_count/500"]) == (16, 16)
        first, second = zip(*(gaps(server, path) for path in paths), strict=True)
        assert min(first) >= 0.1
        assert min(second) >= 0.15, "0.2 doubled is 0.4, cut to 0.3"
        spreads.append(max(first) - min(first))
        if max(first) <= 0.35 and max(second) <= 0.45 and spreads[-1] > 0.01:
            return
    pytest.fail(f"late, or all at the same time: within {spreads} s")


@pytest.mark.parametrize(("path", "min_s"), [("/429?after=1", 1.0), ("/503-date?after=2", 0.9)])
def test_retry_after_is_honoured_for_the_whole_host(server, path, min_s):
    other = Request(server.url("/good"), priority=-1)
    result = crawled(server, Request(server.url(path)), other, concurrency_per_host=1)
    assert gaps(server, path)[0] >= min_s
    first, *rest = (hit.at for hit in server.hits)
    assert min(rest) - first >= min_s, "other pages of the host wait, too"
    assert len(result.items) == 2


def test_settings_choose_which_statuses_are_retried(server):
    requests = [Request(server.url(path)) for path in ("/404", "/500")]
    result = crawled(server, *requests, retry_statuses=[404])
    assert (result.of("/404"), result.hits["/404"]) == (("dead", "404"), 2)
    assert (result.of("/500"), result.hits["/500"]) == (("done", "500"), 1)
    assert result.summary.dead_reasons == {"404": 1}
    assert result.stats["retry/max_reached"] == 1


@pytest.mark.parametrize(
    ("options", "tries"),
    [({}, 2), ({"retries": 4}, 5), ({"retries": 0}, 1), ({"meta": {"dont_retry": True}}, 1)],
)
def test_a_request_chooses_how_often_it_is_retried(server, options, tries):
    paths = ("/500", "/short")
    result = crawled(server, *(Request(server.url(path), **options) for path in paths))
    assert result.hits == dict.fromkeys(paths, tries)
    assert [result.rows[path].state for path in paths] == ["dead", "dead"]


def test_a_final_failure_does_not_count_as_max_retries_reached(server):
    result = crawled(server, Request(server.url("/endless")), max_body=1000)
    assert result.of("/endless") == ("dead", "body over 1000 bytes")
    assert not {"retry/count", "retry/max_reached"} & set(result.stats)


def test_a_callback_may_request_a_retry_with_a_delay(server):
    class Again(Requesting):
        def parse(self, response):
            tries = response.record.attempts
            if tries < 2:
                raise RetryRequest("not yet", delay_s=0.3 * tries)
            yield {"tries": tries}

    result = asyncio.run(run_crawl(server, Again(requests=[Request(server.url("/good"), retries=5)]), backoff_base=50))  # type: ignore[arg-type]
    first, second = gaps(server, "/good")
    assert first < 0.3 <= second
    assert (result.items, result.stats["retry/reason_count/not yet"]) == ([{"tries": 2}], 2)


def test_a_redirect_chain_is_followed_up_to_the_limit(server):
    start = Request(server.url("/redirect-chain/0"), errback="on_error")
    result = crawled(server, start, max_redirects=3)
    assert list(result.hits) == [f"/redirect-chain/{number}" for number in range(4)]
    assert result.of("/redirect-chain/3") == ("done", "more than 3 redirects")
    assert result.items == [{"failure": "HttpError"}]


def test_a_redirect_loop_is_dead(server):
    result = crawled(server, Request(server.url("/redirect-loop/a")))
    assert result.hits == {"/redirect-loop/a": 1, "/redirect-loop/b": 1}
    assert result.of("/redirect-loop/b") == ("dead", "redirect loop")


def test_a_known_redirect_target_is_not_fetched_again(server):
    result = crawled(server, Request(server.url("/good")), Request(server.url("/redirect-good")), concurrency=1)
    assert (result.hits["/good"], result.of("/redirect-good")) == (1, ("done", "redirect"))


@pytest.mark.parametrize(
    ("status", "method", "next_method"),
    [
        *((status, "POST", "GET") for status in (301, 302, 303)),
        *((status, "POST", "POST") for status in (307, 308)),
        (303, "PUT", "GET"),
        *((status, "PUT", "PUT") for status in (301, 302, 307, 308)),
        *((status, "GET", "GET") for status in (301, 302, 303, 307, 308)),
    ],
)
def test_a_redirect_keeps_or_changes_the_method_by_its_status(server, status, method, next_method):
    body = b"" if method == "GET" else b"name=ada"
    headers = {"Content-Type": "application/x-www-form-urlencoded", "X-Mine": "1"} if body else {"X-Mine": "1"}
    request = Request(server.url(f"/redirects/{status}"), method=method, body=body, headers=headers)
    (item,) = crawled(server, request).items
    echoed = json.loads(item["text"])
    assert (echoed["method"], bytes.fromhex(echoed["body"])) == (next_method, body if next_method == method else b"")
    assert ("content-type" in echoed["headers"]) == (bool(body) and next_method == method)
    assert echoed["headers"]["x-mine"] == "1"
    assert item["meta"]["redirect_urls"] == [request.url]
    assert item["meta"]["redirect_reasons"] == [status]


def test_a_site_that_redirects_until_it_receives_its_cookie_works(server):
    paths = ["/cookies-required", "/identity/a"]
    result = crawled(server, *(Request(server.url(path)) for path in paths), concurrency=1)
    assert [item["status"] for item in result.items] == [200, 200]
    assert result.hits == {"/cookies-required": 2, "/identity/a": 2}
    dead = crawled(server, *(Request(server.url(path)) for path in paths), cookies=False)
    assert [dead.rows[path].reason for path in paths] == ["redirect loop"] * 2


def test_credentials_are_not_sent_to_another_host():
    async def run(target: str) -> dict[str, str]:
        async with serving() as server, serving(host="127.0.0.2") as other:
            url = (other if target == "other" else server).url("/echo")
            secrets = {"Authorization": "Basic QTpC", "Proxy-Authorization": "Basic QTpC", "X-Mine": "1"}
            request = Request(server.url(f"/redirect-to?url={url}"), headers=secrets, cookies={"user": "ada"})
            result = await run_crawl(server, Requesting(requests=[request]))  # type: ignore[arg-type]
            return json.loads(result.items[0]["text"])["headers"]

    other_host, same_host = asyncio.run(run("other")), asyncio.run(run("same"))
    assert {"authorization", "cookie", "proxy-authorization"} & set(other_host) == set()
    assert other_host["x-mine"] == "1"
    assert (same_host["authorization"], same_host["cookie"]) == ("Basic QTpC", "user=ada")


def test_a_redirect_out_of_scope_is_not_followed():
    async def run() -> None:
        async with serving() as server, serving(host="127.0.0.2") as other:
            request = Request(server.url(f"/redirect-to?url={other.url('/good')}"))

            class OneDomain(Requesting):
                allowed_domains = ("127.0.0.1",)

            filtered = await run_crawl(server, OneDomain(requests=[request]))  # type: ignore[arg-type]
            assert (filtered.items, other.hits) == ([], [])
            assert next(iter(filtered.rows.values())).reason == "redirect out of scope"
            followed = await run_crawl(server, OneDomain(requests=[request.replace(meta={"allow_offsite": True})]))  # type: ignore[arg-type]
            assert (len(followed.items), len(other.hits)) == (1, 1)

    asyncio.run(run())


class Handling(Requesting):
    """Handles a 429 of the last try itself: with an errback, a handled status, or an inline fetch."""

    name = "handling"
    handling = ""

    async def start(self):
        yield Request(self.start_urls[0], self.parse_start)

    async def parse_start(self, response):
        busy = response.urljoin("/429?after=1")
        if self.handling == "inline":
            yield {"status": (await self.fetch(busy)).status}
        yield response.follow("/good", priority=-1)
        if self.handling == "errback":
            yield Request(busy, errback=self.on_error)
        elif self.handling == "handled":
            yield Request(busy, meta={"handle_httpstatus_list": [429]})
        elif self.handling == "not retried":
            yield Request(busy, meta={"handle_httpstatus_list": [429], "dont_retry": True})


@pytest.mark.parametrize("handling", ["errback", "handled", "not retried", "inline"])
def test_a_host_is_blocked_after_the_last_try_too(server, handling):
    spider = Handling(start_urls=[server.url("/links/1")], handling=handling)
    result = asyncio.run(run_crawl(server, spider, concurrency_per_host=1, retries=0))
    (busy,) = (hit.at for hit in server.hits if hit.path == "/429")
    (good,) = (hit.at for hit in server.hits if hit.path == "/good")
    assert len(result.items) == 2
    assert good - busy >= 1.0, "Retry-After: 1"
