"""The keys of a finished crawl expire as a whole; an unfinished or restarted crawl never loses any."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from secrets import token_hex
from typing import Any

import pytest

from lycosa.core.errors import StateError
from lycosa.frontier.redis.admin import expiry, keyspace, revival
from lycosa.frontier.redis.admin import open_crawl as open_crawls
from lycosa.frontier.redis.admin.expiry import expire_crawl
from lycosa.frontier.redis.admin.open_crawl import open_crawl
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.session import CRAWLS, key_of
from tests.frontier.contracts.redis.test_deletion import HOSTS, connected, crawled, joined, keys_with, records

pytestmark = pytest.mark.redis

LONG_S, SHORT_S = 1000.0, 0.5
GONE_MAX_S = 30.0


@pytest.fixture(params=[1, 3])
def partitions(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace, "SCANNED_AT_ONCE", 20)
    monkeypatch.setattr(expiry, "WORKERS_MAX_S", 0.3)


async def once(call: Any) -> Any:
    return await call()


async def lives(client: Any, name: str) -> dict[bytes, int]:
    """Return the remaining milliseconds of each key of a crawl, -1 for those that do not expire."""
    return {key: await client.pttl(key) for key in await keys_with(client, f"{{{name}.")}


async def assert_kept(url: str, name: str) -> None:
    async with connected(url) as client:
        found = await lives(client, name)
        assert found
        assert {key: left for key, left in found.items() if left != -1} == {}
        fields = [await client.hkeys(key) for key in found if key.endswith(b":" + Key.META.encode())]
        assert not any({b"expires_at", b"reviving"} & {*each} for each in fields)


def test_all_keys_of_a_finished_crawl_expire_and_those_of_others_do_not(redis: Any, partitions: int) -> None:
    async def scenario() -> None:
        name, other = token_hex(8), token_hex(8)
        await crawled(redis.url, name, partitions)
        await crawled(redis.url, other, partitions)
        assert await expire_crawl(redis.url, name, LONG_S, print)
        async with connected(redis.url) as client:
            left = await lives(client, name)
            assert len(left) > HOSTS
            assert min(left.values()) > (LONG_S - 100) * 1000
            assert await expire_crawl(redis.url, name, SHORT_S, print), "a new time replaces the previous one"
            until = time.monotonic() + GONE_MAX_S
            while await keys_with(client, name):
                assert time.monotonic() < until
        await assert_kept(redis.url, other)

    asyncio.run(scenario())


def test_the_time_when_a_crawl_expires_is_known(redis: Any, partitions: int) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions)
        async with open_crawl(redis.url, name, print) as opened:
            assert await opened.crawl.expires_at() is None
        before = time.time()
        assert await expire_crawl(redis.url, name, LONG_S, print)
        async with open_crawl(redis.url, name, print) as opened:
            at = await opened.crawl.expires_at()
        assert at is not None
        assert before + LONG_S - 1 < at < time.time() + LONG_S + 1

    asyncio.run(scenario())


def test_listing_the_crawls_forgets_the_names_of_expired_ones(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_crawls, "FORGOTTEN_MAX", 2)

    async def scenario() -> None:
        kept, gone = token_hex(8), [token_hex(8) for _ in range(3)]
        await crawled(redis.url, kept)
        async with connected(redis.url) as client:
            await open_crawls.stored_crawls(client, once)  # forgets those of earlier tests, two at a time
            while len(await open_crawls.stored_crawls(client, once)) < await client.scard(CRAWLS):
                pass
            await client.sadd(CRAWLS, *gone)
            left = []
            for _ in range(3):
                assert kept in await open_crawls.stored_crawls(client, once)
                left.append(sum(await client.smismember(CRAWLS, gone)))
            assert left == [1, 0, 0]
            assert await client.sismember(CRAWLS, kept)

    asyncio.run(scenario())


def test_a_crawl_that_starts_while_its_old_name_is_forgotten_keeps_its_name(redis: Any) -> None:
    async def scenario() -> None:
        started, gone = token_hex(8), token_hex(8)
        await crawled(redis.url, started)  # starts after its name was found to have no keys
        async with connected(redis.url) as client:
            await client.sadd(CRAWLS, gone)
            await open_crawls._forget_names(client, once, [started, gone])
            assert await client.smismember(CRAWLS, [started, gone]) == [1, 0]

    asyncio.run(scenario())


def test_an_unfinished_crawl_does_not_expire(redis: Any, partitions: int) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions, pages=HOSTS - 1)
        assert not await expire_crawl(redis.url, name, LONG_S, print)
        await assert_kept(redis.url, name)

    asyncio.run(scenario())


def test_a_crawl_with_a_worker_does_not_expire(redis: Any, partitions: int) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions)
        worker = await joined(redis.url, name, partitions)
        assert not await expire_crawl(redis.url, name, LONG_S, print)
        await assert_kept(redis.url, name)
        await worker.close()

    asyncio.run(scenario())


def test_a_worker_that_joins_keeps_the_crawl(redis: Any, partitions: int) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions)
        assert await expire_crawl(redis.url, name, LONG_S, print)
        worker = await joined(redis.url, name, partitions)
        assert await worker.push(records()) == 0, "all URLs are still known"
        await worker.close()
        await assert_kept(redis.url, name)

    asyncio.run(scenario())


def test_urls_from_outside_keep_the_crawl(redis: Any, partitions: int) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions)
        assert await expire_crawl(redis.url, name, LONG_S, print)
        async with open_crawl(redis.url, name, print) as opened:
            assert await opened.operations(runs=False).push(records(HOSTS + 1)) == 1
        await assert_kept(redis.url, name)

    asyncio.run(scenario())


def test_a_worker_that_joins_while_the_expiry_is_set_keeps_the_crawl(
    redis: Any, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan, workers = keyspace.batches, []

    async def joined_in_between(client: Any, retry: Any, name: str) -> AsyncIterator[list[bytes]]:
        number = 0
        async for batch in scan(client, retry, name):
            number += 1
            if number == 3 and not workers:
                workers.append(None)
                workers[:] = [await joined(redis.url, name, partitions)]
            yield batch

    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions)
        monkeypatch.setattr(keyspace, "batches", joined_in_between)
        await expire_crawl(redis.url, name, LONG_S, print)
        (worker,) = workers
        await assert_kept(redis.url, name)
        await worker.close()

    asyncio.run(scenario())


def test_a_worker_that_comes_too_late_starts_no_half_expired_crawl(
    redis: Any, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(revival, "MARGIN_S", LONG_S)

    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, partitions)
        async with connected(redis.url) as client:
            await expire_crawl(redis.url, name, LONG_S / 2, print)
            await client.persist(key_of(name, 0) + Key.META)  # as if the process that sets the expiry had died
            with pytest.raises(StateError, match="has expired"):
                await joined(redis.url, name, partitions)
            assert await keys_with(client, name) == set()
        worker = await joined(redis.url, name, partitions)
        assert await worker.push(records()) == HOSTS, "a new crawl"
        await worker.close()

    asyncio.run(scenario())
