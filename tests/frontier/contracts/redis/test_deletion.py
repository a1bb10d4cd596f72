"""Deleting a crawl in Redis removes all of its keys and no others, in steps that may be interrupted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from secrets import token_hex
from typing import Any

import pytest
import redis.asyncio

from lycosa.core.errors import StateError, UsageError
from lycosa.core.url import fingerprint, host_key
from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.core.states import Policy
from lycosa.frontier.redis.admin import keyspace
from lycosa.frontier.redis.admin.deletion import delete_crawl
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.session import CRAWLS

pytestmark = pytest.mark.redis

POLICY = Policy(robots=False)
HOSTS = 30


def records(number: int = HOSTS) -> list[UrlRecord]:
    urls = [f"http://{n}.example/" for n in range(number)]
    return [UrlRecord(RECORD_VERSION, fingerprint("GET", url, b""), url, host_key(url)) for url in urls]


async def joined(url: str, name: str, partitions: int = 1, member: Membership | None = None) -> RedisFrontier:
    member = member or Membership(token_hex(4))
    return await redis_frontier(url, name, POLICY, member, lambda _: None, partitions=partitions)


async def crawled(url: str, name: str, partitions: int = 1, pages: int = HOSTS) -> None:
    """Start a crawl with pages of many hosts, and fetch `pages` of them."""
    frontier = await joined(url, name, partitions)
    await frontier.push(records())
    while pages > 0:
        for lease in await frontier.lease(pages, 0.0):
            await frontier.ack(lease, "200", [], 0.0)
            pages -= 1
    await frontier.commit({"jsonl:/items": 7})
    await frontier.close()


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Any]:
    client = redis.asyncio.Redis.from_url(url)
    try:
        yield client
    finally:
        await client.aclose()


async def keys_with(client: Any, text: str) -> set[bytes]:
    return {key async for key in client.scan_iter(match="lycosa:{*", count=1000) if text.encode() in key}


@pytest.mark.parametrize("partitions", [1, 3])
def test_all_keys_of_the_crawl_go_and_those_of_others_stay(redis: Any, partitions: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(keyspace, "SCANNED_AT_ONCE", 5)

    async def scenario() -> None:
        mark = token_hex(4)
        name = f"{mark}*[a]?"  # as a pattern it would match the second of the others
        others = [f"{name}.0", f"{mark}xa!", f"{mark}"]
        for each in (name, *others):
            await crawled(redis.url, each, partitions)
        async with connected(redis.url) as client:
            kept = {each: await keys_with(client, f"{{{each}.") for each in others}
            assert await delete_crawl(redis.url, name, print) == HOSTS
            left = await keys_with(client, mark)
            assert left == set().union(*kept.values())
            assert await client.smismember(CRAWLS, [name, *others]) == [0, 1, 1, 1]
            await client.delete(*left)
            await client.srem(CRAWLS, *others)
        with pytest.raises(UsageError, match="there is no crawl"):
            await delete_crawl(redis.url, name, print)

    asyncio.run(scenario())


def test_a_crawl_in_a_cluster_is_deleted_on_all_its_servers(cluster: Any) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(cluster.url, name, 6)
        await delete_crawl(cluster.url, name, print)
        for node in cluster.nodes:
            async with connected(node.url) as client:
                assert await keys_with(client, name) == set()

    asyncio.run(scenario())


def test_a_crawl_with_unfetched_urls_is_deleted_by_force_only(redis: Any) -> None:
    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, 2, pages=10)
        with pytest.raises(UsageError, match=r"20 URLs of the crawl .* have not been fetched yet: use --force"):
            await delete_crawl(redis.url, name, print)
        await crawled(redis.url, name, 2, pages=5)  # the refused deletion has not changed the crawl
        assert await delete_crawl(redis.url, name, print, force=True) == HOSTS

    asyncio.run(scenario())


def test_a_crawl_with_workers_is_deleted_by_force_only_and_its_workers_learn_of_it(redis: Any) -> None:
    async def scenario() -> None:
        name, member = token_hex(8), Membership("w")
        worker = await joined(redis.url, name, 2, member)
        with pytest.raises(UsageError, match=r"the crawl .* has 1 worker: stop it first, or use --force"):
            await delete_crawl(redis.url, name, print)
        await worker.push(records())
        await delete_crawl(redis.url, name, print, force=True)
        with pytest.raises(StateError, match="the server no longer knows"):
            await worker.push(records())
        await worker.close()
        async with connected(redis.url) as client:
            assert await keys_with(client, name) == set(), "a worker that still runs leaves nothing behind"
        with pytest.raises(StateError, match="the server has lost it"):
            await joined(redis.url, name, 2, member)

    asyncio.run(scenario())


def test_an_interrupted_deletion_is_finished_by_the_next_and_nobody_joins_in_between(
    redis: Any, monkeypatch: Any
) -> None:
    async def interrupted(*_: Any) -> AsyncIterator[list[bytes]]:
        raise KeyboardInterrupt
        yield []

    async def scenario() -> None:
        name = token_hex(8)
        await crawled(redis.url, name, 2)
        with monkeypatch.context() as patched:
            patched.setattr(keyspace, "batches", interrupted)
            with pytest.raises(KeyboardInterrupt):
                await delete_crawl(redis.url, name, print)
        with pytest.raises(StateError, match="is being deleted"):
            await joined(redis.url, name, 2)
        await delete_crawl(redis.url, name, print)
        async with connected(redis.url) as client:
            assert await keys_with(client, name) == set()

    asyncio.run(scenario())
