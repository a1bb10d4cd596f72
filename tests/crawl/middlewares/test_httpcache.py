"""The HTTP cache in the downloader (C10): requests to the host, responses, stats, stored responses."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from email.utils import formatdate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from lycosa.core.retry import RetryPolicy
from lycosa.crawl.engine.verdict import Failed, Ignored, Unchanged
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.download import Downloader, content_type_filter
from lycosa.crawl.fetching.retry import RetryDecider
from lycosa.crawl.fetching.statuses import HandledStatuses
from lycosa.crawl.middlewares.chain import DownloaderChain, PlacedMiddleware
from lycosa.crawl.middlewares.httpcache import HttpCache
from lycosa.crawl.middlewares.redirect import Redirect
from lycosa.crawl.spiders.response import Response
from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.http.cache.sqlite import SqliteCache
from lycosa.http.core.cache_rules import PrivateRules, ReplayRules
from lycosa.http.core.model import Validators
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from tests.http.contracts.fetching import fetching
from tests.http.memory_cache import MemoryCache
from tests.servers.misbehaving import serving
from tests.servers.sins import SINS

NOW = 1_800_000_000.0
MODIFIED = formatdate(NOW - 1000, usegmt=True)


class Answer(NamedTuple):
    """The next response of the server; status 0 resets the connection."""

    status: int = 200
    body: str = "body"
    fields: dict[str, str] = {}


class CacheHarness:
    """A downloader with a cache, and a server that gives the listed answers, the last one repeatedly."""

    def __init__(self, **options: Any) -> None:
        self.answers: list[Answer] = []
        self.requests: list[dict[str, str]] = []
        self.counts: Counter[str] = Counter()
        self.now = NOW
        self.clock = Clock(lambda: self.now, lambda: self.now)
        self.store = options.pop("store", None) or MemoryCache()
        rules = options.pop("rules", PrivateRules())
        self.accept = options.get("accept")
        self.cache = HttpCache(self.store, rules, self.clock, self.count, **options)
        self.url = ""
        self.downloader: Any = None

    def count(self, name: str) -> None:
        self.counts[name] += 1

    def take_counts(self) -> dict[str, int]:
        """Return the counts since the last call."""
        counts, self.counts = dict(self.counts), Counter()
        return counts

    async def answer(self, x: Any) -> None:
        self.requests.append(x.hit.headers)
        status, body, fields = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not status:
            x.abort()
            return
        await x.answer(status, body, **fields)

    async def get(self, request: Request | str = "") -> Any:
        if isinstance(request, str):
            request = Request(self.url + request)
        return await self.downloader.download(request)


@asynccontextmanager
async def open_harness(**options: Any) -> AsyncIterator[CacheHarness]:
    harness = CacheHarness(**options)
    SINS["/scripted"] = harness.answer
    try:
        async with serving() as server, fetching() as fetcher:
            harness.url = server.url("/scripted")
            harness.downloader = Downloader(
                fetcher,
                DownloaderChain([PlacedMiddleware(900, harness.cache)], object()),
                RetryDecider(RetryPolicy(), harness.clock, lambda: 0.5, StatsCollector()),
                harness.clock,
                harness.accept,
            )
            yield harness
    finally:
        del SINS["/scripted"]
        await harness.store.close()


def run(scenario: Callable[[CacheHarness], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), open_harness(**options) as harness:
            await scenario(harness)

    asyncio.run(main())


def flags_of(response: Any) -> list[str]:
    assert isinstance(response, Response), response
    return response.flags


HOUR = {"Cache_Control": "max-age=3600"}
ETAG = {"Cache_Control": "max-age=60", "ETag": '"1"'}


def test_a_fresh_response_is_served_without_the_host():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR | {"X_A": "1", "Set_Cookie": "a=b"})]
        first = await harness.get()
        assert (flags_of(first), first.contacted, first.headers["set-cookie"]) == ([], True, "a=b")
        harness.now += 5
        second = await harness.get()
        assert (second.flags, second.contacted, len(harness.requests)) == (["cached"], False, 1)
        assert (second.url, second.status, second.body, second.headers["x-a"]) == (first.url, 200, b"body", "1")
        assert (second.ip_address, second.protocol) == (first.ip_address, first.protocol) == ("127.0.0.1", "1.1")
        assert (second.headers["age"], second.fetched_at, second.raw.size_bytes) == ("5", NOW, 0)
        assert "set-cookie" not in second.headers
        harness.now += 3600
        assert flags_of(await harness.get()) == []
        assert len(harness.requests) == 2
        assert harness.take_counts() == {"miss": 1, "firsthand": 1, "store": 2, "hit": 1, "invalidate": 1}

    run(scenario)


def test_a_304_serves_the_stored_body_with_new_fields():
    async def scenario(harness: CacheHarness):
        not_modified = Answer(304, "", ETAG | {"X_New": "1", "Set_Cookie": "c=d"})
        harness.answers = [Answer(fields=ETAG | {"Last_Modified": MODIFIED}), not_modified]
        await harness.get()
        harness.now += 61
        request = Request(harness.url)
        response = await harness.get(request)
        assert (harness.requests[1]["if-none-match"], harness.requests[1]["if-modified-since"]) == ('"1"', MODIFIED)
        assert (flags_of(response), response.contacted) == (["cached", "revalidated"], True)
        assert (response.status, response.body, response.headers["x-new"]) == (200, b"body", "1")
        assert response.headers["set-cookie"] == "c=d"
        assert (dict(request.headers), request.meta, response.request) == ({}, {}, request)
        assert flags_of(await harness.get()) == ["cached"]
        assert len(harness.requests) == 2
        assert harness.take_counts() == {"miss": 1, "firsthand": 1, "store": 1, "revalidate": 1, "hit": 1}

    run(scenario)


def test_a_changed_page_replaces_the_stored_one():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=ETAG), Answer(body="new", fields=ETAG | {"ETag": '"2"'})]
        await harness.get()
        harness.now += 61
        assert ((await harness.get()).body, (await harness.get()).body) == (b"new", b"new")
        assert len(harness.requests) == 2
        assert harness.take_counts()["invalidate"] == 1

    run(scenario)


def test_a_page_that_may_no_longer_be_stored_is_deleted():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=ETAG), Answer(body="secret", fields={"Cache_Control": "no-store"})]
        await harness.get()
        harness.now += 61
        assert (await harness.get()).body == b"secret"
        assert (
            await harness.store.get(next(iter(harness.store._stored), "")),
            harness.take_counts()["uncacheable"],
        ) == (None, 1)

    run(scenario)


@pytest.mark.parametrize("failure", [Answer(0), Answer(503, "down"), Answer(500, "broken")])
def test_a_stale_response_replaces_the_response_of_a_failing_host(failure):
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=ETAG), failure]
        await harness.get()
        harness.now += 61
        request = Request(harness.url)
        response = await harness.get(request)
        assert (flags_of(response), response.contacted) == (["cached", "stale"], True)
        assert (response.body, dict(request.headers), request.meta) == (b"body", {}, {})
        assert harness.take_counts()["errorrecovery"] == 1

    run(scenario)


def test_no_pending_response_outlives_its_request():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=ETAG)]
        await harness.get()
        harness.now += 61
        request = Request(harness.url)
        assert await harness.cache.process_request(request) is None
        assert (dict(request.headers), request.meta) == ({"If-None-Match": '"1"'}, {})
        assert len(harness.cache._pending) == 1
        del request
        assert harness.cache._pending == {}

    run(scenario)


@pytest.mark.parametrize("forbidden", ["max-age=60, must-revalidate", "max-age=60, stale-if-error=1"])
def test_a_stale_response_is_not_used_if_its_cache_control_forbids_it(forbidden):
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=ETAG | {"Cache_Control": forbidden}), Answer(0)]
        await harness.get()
        harness.now += 65
        request = Request(harness.url)
        assert isinstance(await harness.get(request), Failed)
        assert (dict(request.headers), request.meta) == ({}, {})
        harness.answers = [Answer(503)]
        assert [(await harness.get()).status for _ in range(2)] == [503, 503]
        assert harness.requests[-1]["if-none-match"] == '"1"'  # the stored response outlives the failures

    run(scenario)


def test_dont_cache_and_no_store_bypass_the_cache():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        for _ in range(2):
            assert flags_of(await harness.get(Request(harness.url, meta={"dont_cache": True}))) == []
            assert flags_of(await harness.get(Request(harness.url, headers={"Cache-Control": "no-store"}))) == []
        assert harness.take_counts() == {}
        await harness.get()
        assert flags_of(await harness.get(Request(harness.url, meta={"dont_cache": True}))) == []
        assert flags_of(await harness.get(Request(harness.url, meta={"dont_cache": False}))) == ["cached"]

    run(scenario)


def test_a_request_with_its_own_conditions_bypasses_the_cache():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR | ETAG), Answer(304, "", ETAG)]
        await harness.get()
        assert (await harness.get(Request(harness.url, headers={"If-None-Match": '"1"'}))).status == 304
        assert flags_of(await harness.get()) == ["cached"]

    run(scenario)


def refetch_request(url: str) -> Request:
    request = Request(url)
    request.record = UrlRecord(RECORD_VERSION, 1, url, "h", validators=Validators('"1"', "", NOW - 1000))
    return request


def test_a_refetch_contacts_the_host_and_a_304_means_unchanged():
    async def scenario(harness: CacheHarness):
        harness.answers = [
            Answer(fields=HOUR | ETAG),
            Answer(304, "", ETAG),
            Answer(body="new", fields=HOUR | {"ETag": '"2"'}),
        ]
        await harness.get()
        assert isinstance(await harness.get(refetch_request(harness.url)), Unchanged)
        assert (await harness.get(refetch_request(harness.url))).body == b"new"
        assert [each.get("if-none-match") for each in harness.requests] == [None, '"1"', '"1"']
        assert ((await harness.get()).body, len(harness.requests)) == (b"new", 3)

    run(scenario)


def test_vary_covers_default_headers_and_each_cookie_jar_has_its_own_responses():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR | {"Vary": "Accept-Language, User-Agent"})]
        await harness.get(Request(harness.url, headers={"accept-language": "de"}))
        assert flags_of(await harness.get(Request(harness.url, headers={"Accept-Language": "en"}))) == []
        assert flags_of(await harness.get(Request(harness.url, headers={"Accept-Language": "en"}))) == ["cached"]
        harness.cache.defaults["user-agent"] = "another"
        assert flags_of(await harness.get(Request(harness.url, headers={"Accept-Language": "en"}))) == []
        harness.answers = [Answer(fields=HOUR)]
        assert flags_of(await harness.get(Request(harness.url, cookiejar="1"))) == []
        assert flags_of(await harness.get(Request(harness.url, cookiejar="2"))) == []
        assert flags_of(await harness.get(Request(harness.url, cookiejar="1"))) == ["cached"]

    run(scenario, defaults={"user-agent": "Lycosa"})


def test_a_post_invalidates_the_stored_response():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        await harness.get()
        assert flags_of(await harness.get()) == ["cached"]
        assert flags_of(await harness.get(Request(harness.url, method="POST", body=b"x"))) == []
        assert flags_of(await harness.get()) == []

    run(scenario)


def test_head_and_get_are_stored_separately():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        assert (await harness.get(Request(harness.url, method="HEAD"))).body == b""
        assert (await harness.get()).body == b"body"
        assert flags_of(await harness.get(Request(harness.url, method="HEAD"))) == ["cached"]

    run(scenario)


def test_with_only_if_cached_the_host_is_never_contacted():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        found = await harness.get(Request(harness.url, headers={"Cache-Control": "only-if-cached"}))
        assert isinstance(found, Ignored)
        assert (found.reason, found.contacted, harness.requests) == ("not in the cache", False, [])
        await harness.get()
        assert flags_of(await harness.get(Request(harness.url, headers={"Cache-Control": "only-if-cached"}))) == [
            "cached"
        ]
        assert harness.take_counts()["ignore"] == 1

    run(scenario)


def test_a_stored_redirect_does_not_delay_the_host():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(301, "", {"Location": "/there"})]
        harness.downloader.chain.responses.append(Redirect(20, HandledStatuses()).process_response)
        assert [(await harness.get()).contacted for _ in range(2)] == [True, False]

    run(scenario)


def test_a_stored_body_of_a_refused_content_type_is_skipped():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        await harness.get()
        harness.cache.accept = content_type_filter(["text/plain"])
        assert (await harness.get()).raw.skipped

    run(scenario)


def test_a_skipped_body_is_not_stored():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        assert (await harness.get()).raw.skipped
        assert harness.take_counts() == {"miss": 1, "firsthand": 1, "uncacheable": 1}

    run(scenario, accept=content_type_filter(["text/plain"]))


def test_concurrent_requests_get_their_own_responses():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        found = await asyncio.gather(*(harness.get(f"?{number % 5}") for number in range(50)))
        assert [each.url for each in found] == [f"{harness.url}?{number % 5}" for number in range(50)]
        assert {each.body for each in found} == {b"body"}

    run(scenario)


# ------------------------------------------------------------------------------------------------------------- replay


def test_replay_serves_every_stored_response(tmp_path: Path):
    async def first(harness: CacheHarness):
        harness.answers = [Answer(404, "gone", {"Cache_Control": "no-store"}), Answer(body="x" * 10_000)]
        await harness.get()
        await harness.get(Request(harness.url, method="POST", body=b"1"))

    async def second(harness: CacheHarness):
        harness.answers = [Answer(body="new")]
        harness.now += 10**8
        found = await harness.get(refetch_request(harness.url))
        assert (flags_of(found), found.status, found.body) == (["cached"], 404, b"gone")
        assert (await harness.get(Request(harness.url, method="POST", body=b"1"))).body == b"x" * 10_000
        assert flags_of(await harness.get(Request(harness.url, method="POST", body=b"2"))) == []
        assert len(harness.requests) == 3

    async def main():
        async with open_harness(store=SqliteCache(tmp_path), rules=ReplayRules()) as harness:
            await first(harness)
            stored = [msgspec.structs.asdict(await harness.store.get(key)) for key in await keys(harness)]
            assert {each["status"] for each in stored} == {200, 404}
            await second(harness)

    async def keys(harness: CacheHarness) -> list[str]:
        return [key for (key,) in harness.store._database.execute("SELECT key FROM responses")]

    asyncio.run(main())


def test_responses_to_requests_with_cookies_are_not_shared_between_spiders():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        with_cookie, without_cookie = Request(harness.url, headers={"Cookie": "who=ann"}), Request(harness.url)
        await harness.get(with_cookie.copy())
        assert flags_of(await harness.get(with_cookie.copy())) == ["cached"]
        assert flags_of(await harness.get(without_cookie.copy())) == []
        harness.cache.owner = "bob"
        assert flags_of(await harness.get(with_cookie.copy())) == []
        assert flags_of(await harness.get(without_cookie.copy())) == ["cached"]

    run(scenario, owner="ann")


def test_replay_ignores_vary_authorization_and_cache_control():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields={"Vary": "X"})]
        await harness.get(Request(harness.url, headers={"Authorization": "Bearer 1", "X": "1"}))
        assert flags_of(await harness.get(Request(harness.url, headers={"Authorization": "Bearer 2", "X": "2"}))) == [
            "cached"
        ]
        assert flags_of(await harness.get(Request(harness.url, headers={"Cache-Control": "no-store"}))) == ["cached"]
        assert flags_of(await harness.get(Request(harness.url, cookiejar="2"))) == []

    run(scenario, rules=ReplayRules())


def test_replay_with_ignore_missing_never_contacts_the_host():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer()]
        found = await harness.get()
        assert (isinstance(found, Ignored), harness.requests, harness.take_counts()) == (
            True,
            [],
            {"miss": 1, "ignore": 1},
        )

    run(scenario, rules=ReplayRules(ignore_missing=True))


def test_replay_does_not_store_responses_that_are_retried():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(503), Answer(body="up")]
        assert (await harness.get()).status == 503
        assert (flags_of(await harness.get()), flags_of(await harness.get())) == ([], ["cached"])

    run(scenario, rules=ReplayRules())


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_failing_cache_is_disabled_with_one_error(tmp_path: Path, caplog):
    (tmp_path / "httpcache.sqlite").write_bytes(b"not a database" * 100)

    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        for _ in range(3):
            assert flags_of(await harness.get()) == []
        assert (harness.take_counts()["retrieve_error"], len(harness.requests)) == (1, 3)

    run(scenario, store=SqliteCache(tmp_path))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the HTTP cache is no longer used"]


def test_a_cancelled_download_leaves_the_cache_usable():
    async def scenario(harness: CacheHarness):
        harness.answers = [Answer(fields=HOUR)]
        for steps in range(30):
            task = asyncio.ensure_future(harness.get(f"?{steps}"))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await harness.get()
        assert flags_of(await harness.get()) == ["cached"]

    run(scenario)
