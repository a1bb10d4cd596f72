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


class World:
    """A downloader with a cache, and a server that gives the listed answers, the last one repeatedly."""

    def __init__(self, **options: Any) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, str]] = []
        self.counted: Counter[str] = Counter()
        self.now = NOW
        self.clock = Clock(lambda: self.now, lambda: self.now)
        self.store = options.pop("store", None) or MemoryCache()
        rules = options.pop("rules", PrivateRules())
        self.accept = options.get("accept")
        self.cache = HttpCache(self.store, rules, self.clock, self.count, **options)
        self.url = ""
        self.downloader: Any = None

    def count(self, name: str) -> None:
        self.counted[name] += 1

    def took(self) -> dict[str, int]:
        """Return what was counted since the last call."""
        counted, self.counted = dict(self.counted), Counter()
        return counted

    async def answer(self, x: Any) -> None:
        self.asked.append(x.hit.headers)
        status, body, fields = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not status:
            x.abort()
            return
        await x.answer(status, body, **fields)

    async def get(self, request: Request | str = "") -> Any:
        made = Request(self.url + request) if isinstance(request, str) else request
        return await self.downloader.download(made)


@asynccontextmanager
async def world(**options: Any) -> AsyncIterator[World]:
    it = World(**options)
    SINS["/scripted"] = it.answer
    try:
        async with serving() as server, fetching() as fetcher:
            it.url = server.url("/scripted")
            it.downloader = Downloader(
                fetcher,
                DownloaderChain([PlacedMiddleware(900, it.cache)], object()),
                RetryDecider(RetryPolicy(), it.clock, lambda: 0.5, StatsCollector()),
                it.clock,
                it.accept,
            )
            yield it
    finally:
        del SINS["/scripted"]
        await it.store.close()


def play(played: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), world(**options) as it:
            await played(it)

    asyncio.run(main())


def cached(response: Any) -> list[str]:
    assert isinstance(response, Response), response
    return response.flags


HOUR = {"Cache_Control": "max-age=3600"}
ETAG = {"Cache_Control": "max-age=60", "ETag": '"1"'}


def test_a_fresh_response_is_served_without_the_host():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR | {"X_A": "1", "Set_Cookie": "a=b"})]
        first = await it.get()
        assert (cached(first), first.contacted, first.headers["set-cookie"]) == ([], True, "a=b")
        it.now += 5
        second = await it.get()
        assert (second.flags, second.contacted, len(it.asked)) == (["cached"], False, 1)
        assert (second.url, second.status, second.body, second.headers["x-a"]) == (first.url, 200, b"body", "1")
        assert (second.ip_address, second.protocol) == (first.ip_address, first.protocol) == ("127.0.0.1", "1.1")
        assert (second.headers["age"], second.fetched_at, second.raw.size_bytes) == ("5", NOW, 0)
        assert "set-cookie" not in second.headers
        it.now += 3600
        assert cached(await it.get()) == []
        assert len(it.asked) == 2
        assert it.took() == {"miss": 1, "firsthand": 1, "store": 2, "hit": 1, "invalidate": 1}

    play(played)


def test_a_304_serves_the_stored_body_with_new_fields():
    async def played(it: World):
        again = Answer(304, "", ETAG | {"X_New": "1", "Set_Cookie": "c=d"})
        it.answers = [Answer(fields=ETAG | {"Last_Modified": MODIFIED}), again]
        await it.get()
        it.now += 61
        request = Request(it.url)
        response = await it.get(request)
        assert (it.asked[1]["if-none-match"], it.asked[1]["if-modified-since"]) == ('"1"', MODIFIED)
        assert (cached(response), response.contacted) == (["cached", "revalidated"], True)
        assert (response.status, response.body, response.headers["x-new"]) == (200, b"body", "1")
        assert response.headers["set-cookie"] == "c=d"
        assert (dict(request.headers), request.meta, response.request) == ({}, {}, request)
        assert cached(await it.get()) == ["cached"]
        assert len(it.asked) == 2
        assert it.took() == {"miss": 1, "firsthand": 1, "store": 1, "revalidate": 1, "hit": 1}

    play(played)


def test_a_changed_page_replaces_the_stored_one():
    async def played(it: World):
        it.answers = [Answer(fields=ETAG), Answer(body="new", fields=ETAG | {"ETag": '"2"'})]
        await it.get()
        it.now += 61
        assert ((await it.get()).body, (await it.get()).body) == (b"new", b"new")
        assert len(it.asked) == 2
        assert it.took()["invalidate"] == 1

    play(played)


def test_a_page_that_may_no_longer_be_stored_is_deleted():
    async def played(it: World):
        it.answers = [Answer(fields=ETAG), Answer(body="secret", fields={"Cache_Control": "no-store"})]
        await it.get()
        it.now += 61
        assert (await it.get()).body == b"secret"
        assert (await it.store.get(next(iter(it.store._stored), "")), it.took()["uncacheable"]) == (None, 1)

    play(played)


@pytest.mark.parametrize("failure", [Answer(0), Answer(503, "down"), Answer(500, "broken")])
def test_a_stale_response_replaces_one_of_a_failing_host(failure):
    async def played(it: World):
        it.answers = [Answer(fields=ETAG), failure]
        await it.get()
        it.now += 61
        request = Request(it.url)
        response = await it.get(request)
        assert (cached(response), response.contacted) == (["cached", "stale"], True)
        assert (response.body, dict(request.headers), request.meta) == (b"body", {}, {})
        assert it.took()["errorrecovery"] == 1

    play(played)


def test_no_pending_response_outlives_its_request():
    async def played(it: World):
        it.answers = [Answer(fields=ETAG)]
        await it.get()
        it.now += 61
        request = Request(it.url)
        assert await it.cache.process_request(request) is None
        assert (dict(request.headers), request.meta) == ({"If-None-Match": '"1"'}, {})
        assert len(it.cache._pending) == 1
        del request
        assert it.cache._pending == {}

    play(played)


@pytest.mark.parametrize("forbidden", ["max-age=60, must-revalidate", "max-age=60, stale-if-error=1"])
def test_a_stale_response_is_not_used_where_that_is_forbidden(forbidden):
    async def played(it: World):
        it.answers = [Answer(fields=ETAG | {"Cache_Control": forbidden}), Answer(0)]
        await it.get()
        it.now += 65
        request = Request(it.url)
        assert isinstance(await it.get(request), Failed)
        assert (dict(request.headers), request.meta) == ({}, {})
        it.answers = [Answer(503)]
        assert [(await it.get()).status for _ in range(2)] == [503, 503]
        assert it.asked[-1]["if-none-match"] == '"1"'  # what is kept outlives the failures

    play(played)


def test_dont_cache_and_no_store_bypass_the_cache():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        for _ in range(2):
            assert cached(await it.get(Request(it.url, meta={"dont_cache": True}))) == []
            assert cached(await it.get(Request(it.url, headers={"Cache-Control": "no-store"}))) == []
        assert it.took() == {}
        await it.get()
        assert cached(await it.get(Request(it.url, meta={"dont_cache": True}))) == []
        assert cached(await it.get(Request(it.url, meta={"dont_cache": False}))) == ["cached"]

    play(played)


def test_a_request_with_its_own_conditions_bypasses_the_cache():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR | ETAG), Answer(304, "", ETAG)]
        await it.get()
        assert (await it.get(Request(it.url, headers={"If-None-Match": '"1"'}))).status == 304
        assert cached(await it.get()) == ["cached"]

    play(played)


def refreshed(url: str) -> Request:
    request = Request(url)
    request.record = UrlRecord(RECORD_VERSION, 1, url, "h", validators=Validators('"1"', "", NOW - 1000))
    return request


def test_a_refetch_contacts_the_host_and_is_unchanged():
    async def played(it: World):
        it.answers = [
            Answer(fields=HOUR | ETAG),
            Answer(304, "", ETAG),
            Answer(body="new", fields=HOUR | {"ETag": '"2"'}),
        ]
        await it.get()
        assert isinstance(await it.get(refreshed(it.url)), Unchanged)
        assert (await it.get(refreshed(it.url))).body == b"new"
        assert [each.get("if-none-match") for each in it.asked] == [None, '"1"', '"1"']
        assert ((await it.get()).body, len(it.asked)) == (b"new", 3)

    play(played)


def test_vary_covers_default_headers_and_users():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR | {"Vary": "Accept-Language, User-Agent"})]
        await it.get(Request(it.url, headers={"accept-language": "de"}))
        assert cached(await it.get(Request(it.url, headers={"Accept-Language": "en"}))) == []
        assert cached(await it.get(Request(it.url, headers={"Accept-Language": "en"}))) == ["cached"]
        it.cache._defaults["user-agent"] = "another"
        assert cached(await it.get(Request(it.url, headers={"Accept-Language": "en"}))) == []
        it.answers = [Answer(fields=HOUR)]
        assert cached(await it.get(Request(it.url, cookiejar="1"))) == []
        assert cached(await it.get(Request(it.url, cookiejar="2"))) == []
        assert cached(await it.get(Request(it.url, cookiejar="1"))) == ["cached"]

    play(played, defaults={"user-agent": "Lycosa"})


def test_a_post_invalidates_the_stored_response():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        await it.get()
        assert cached(await it.get()) == ["cached"]
        assert cached(await it.get(Request(it.url, method="POST", body=b"x"))) == []
        assert cached(await it.get()) == []

    play(played)


def test_head_and_get_are_stored_separately():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        assert (await it.get(Request(it.url, method="HEAD"))).body == b""
        assert (await it.get()).body == b"body"
        assert cached(await it.get(Request(it.url, method="HEAD"))) == ["cached"]

    play(played)


def test_only_if_cached_never_contacts_the_host():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        found = await it.get(Request(it.url, headers={"Cache-Control": "only-if-cached"}))
        assert isinstance(found, Ignored)
        assert (found.reason, found.contacted, it.asked) == ("not in the cache", False, [])
        await it.get()
        assert cached(await it.get(Request(it.url, headers={"Cache-Control": "only-if-cached"}))) == ["cached"]
        assert it.took()["ignore"] == 1

    play(played)


def test_a_stored_redirect_does_not_delay_the_host():
    async def played(it: World):
        it.answers = [Answer(301, "", {"Location": "/there"})]
        it.downloader._chain.responses.append(Redirect(20, HandledStatuses()).process_response)
        assert [(await it.get()).contacted for _ in range(2)] == [True, False]

    play(played)


def test_a_stored_body_of_a_refused_content_type_is_skipped():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        await it.get()
        it.cache._accept = content_type_filter(["text/plain"])
        assert (await it.get()).raw.skipped

    play(played)


def test_a_skipped_body_is_not_stored():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        assert (await it.get()).raw.skipped
        assert it.took() == {"miss": 1, "firsthand": 1, "uncacheable": 1}

    play(played, accept=content_type_filter(["text/plain"]))


def test_concurrent_requests_get_their_own_responses():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        found = await asyncio.gather(*(it.get(f"?{number % 5}") for number in range(50)))
        assert [each.url for each in found] == [f"{it.url}?{number % 5}" for number in range(50)]
        assert {each.body for each in found} == {b"body"}

    play(played)


# ------------------------------------------------------------------------------------------------------------- replay


def test_replay_serves_every_stored_response(tmp_path: Path):
    async def first(it: World):
        it.answers = [Answer(404, "gone", {"Cache_Control": "no-store"}), Answer(body="x" * 10_000)]
        await it.get()
        await it.get(Request(it.url, method="POST", body=b"1"))

    async def second(it: World):
        it.answers = [Answer(body="new")]
        it.now += 10**8
        found = await it.get(refreshed(it.url))
        assert (cached(found), found.status, found.body) == (["cached"], 404, b"gone")
        assert (await it.get(Request(it.url, method="POST", body=b"1"))).body == b"x" * 10_000
        assert cached(await it.get(Request(it.url, method="POST", body=b"2"))) == []
        assert len(it.asked) == 3

    async def main():
        async with world(store=SqliteCache(tmp_path), rules=ReplayRules()) as it:
            await first(it)
            stored = [msgspec.structs.asdict(await it.store.get(key)) for key in await keys(it)]
            assert {each["status"] for each in stored} == {200, 404}
            await second(it)

    async def keys(it: World) -> list[str]:
        return [key for (key,) in it.store._database.execute("SELECT key FROM responses")]

    asyncio.run(main())


def test_responses_to_cookies_are_not_shared_between_spiders():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        mine, nobodys = Request(it.url, headers={"Cookie": "who=ann"}), Request(it.url)
        await it.get(mine.copy())
        assert cached(await it.get(mine.copy())) == ["cached"]
        assert cached(await it.get(nobodys.copy())) == []
        it.cache._owner = "bob"
        assert cached(await it.get(mine.copy())) == []
        assert cached(await it.get(nobodys.copy())) == ["cached"]

    play(played, owner="ann")


def test_replay_ignores_header_fields():
    async def played(it: World):
        it.answers = [Answer(fields={"Vary": "X"})]
        await it.get(Request(it.url, headers={"Authorization": "Bearer 1", "X": "1"}))
        assert cached(await it.get(Request(it.url, headers={"Authorization": "Bearer 2", "X": "2"}))) == ["cached"]
        assert cached(await it.get(Request(it.url, headers={"Cache-Control": "no-store"}))) == ["cached"]
        assert cached(await it.get(Request(it.url, cookiejar="2"))) == []

    play(played, rules=ReplayRules())


def test_replay_without_the_network():
    async def played(it: World):
        it.answers = [Answer()]
        found = await it.get()
        assert (isinstance(found, Ignored), it.asked, it.took()) == (True, [], {"miss": 1, "ignore": 1})

    play(played, rules=ReplayRules(ignore_missing=True))


def test_replay_does_not_store_responses_that_are_retried():
    async def played(it: World):
        it.answers = [Answer(503), Answer(body="up")]
        assert (await it.get()).status == 503
        assert (cached(await it.get()), cached(await it.get())) == ([], ["cached"])

    play(played, rules=ReplayRules())


# ------------------------------------------------------------------------------------------------------------- damage


def test_a_cache_that_fails_is_not_used_any_more(tmp_path: Path, caplog):
    (tmp_path / "httpcache.sqlite").write_bytes(b"not a database" * 100)

    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        for _ in range(3):
            assert cached(await it.get()) == []
        assert (it.took()["retrieve_error"], len(it.asked)) == (1, 3)

    play(played, store=SqliteCache(tmp_path))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["the HTTP cache is not used any more"]


def test_a_cancelled_download_leaves_the_cache_usable():
    async def played(it: World):
        it.answers = [Answer(fields=HOUR)]
        for turns in range(30):
            task = asyncio.ensure_future(it.get(f"?{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await it.get()
        assert cached(await it.get()) == ["cached"]

    play(played)
