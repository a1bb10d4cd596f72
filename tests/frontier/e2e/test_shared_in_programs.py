"""`lycosa.Crawl(frontier=...)`: programs are workers of a shared crawl (C3, C6)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

import lycosa
from lycosa.core.errors import UsageError, WorkerLost
from lycosa.frontier.redis.admin.deletion import delete_crawl
from lycosa.frontier.redis.worker.commits import Commits
from tests.cli.command import assert_exactly_once, items
from tests.cli.command import lycosa as run_command
from tests.servers.misbehaving import Server, running
from tests.servers.redis import RedisServer
from tests.servers.redis_client import redis_client

pytestmark = pytest.mark.redis

PAGES = 60
FAST = {"robots": False, "retries": 0, "concurrency": 2, "slow_callback_after": 0}


class Pages(lycosa.Spider):
    name = "pages"

    async def start(self) -> Any:
        yield lycosa.Request(self.site)

    def parse(self, response: Any) -> Any:
        yield {"url": response.url}
        yield from response.follow_all(css="a")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running() as server:
        yield server


def worker(server: Server, redis: RedisServer, name: str, spider: type[Pages] = Pages, **settings: Any) -> lycosa.Crawl:
    site = server.url(f"/tree/{PAGES}/0")
    shared = {"frontier": redis.url, "crawl_name": name, **FAST, **settings}
    return lycosa.Crawl(type("Pages", (spider,), {}), spider_args={"site": site}, **shared)


def urls(server: Server) -> set[str]:
    return {server.url(f"/tree/{PAGES}/{n}") for n in range(PAGES)}


def test_two_programs_share_a_crawl(server: Server, redis: RedisServer, tmp_path: Path) -> None:
    at_work, both_at_work = set(), asyncio.Event()

    class WaitingPages(Pages):
        """The pages of a program wait until the other program has one, too: all pages are in the queue at once."""

        async def start(self) -> Any:
            for url in urls(server):
                yield lycosa.Request(url)

        async def parse(self, response: Any) -> Any:
            at_work.add(self)
            if len(at_work) == 2:
                both_at_work.set()
            await both_at_work.wait()
            for result in super().parse(response):
                yield result

    async def scenario() -> None:
        name, output = token_hex(4), str(tmp_path / "items.jsonl")
        in_memory = worker(server, redis, name, WaitingPages)
        in_file = worker(server, redis, name, WaitingPages, state=tmp_path / "state", output=output)
        async with asyncio.timeout(60):
            summaries = await asyncio.gather(in_memory.run(), in_file.run())
        assert all(summary.finished for summary in summaries)
        assert {summary.shared["items"] for summary in summaries} >= {PAGES}
        found = [*in_memory.items, *items(tmp_path / "items.jsonl")]
        assert_exactly_once([item["url"] for item in found], urls(server))
        await delete_crawl(redis.url, name, print)

    asyncio.run(scenario())


def test_the_last_worker_of_a_finished_crawl_lets_it_expire(server: Server, redis: RedisServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        name = token_hex(4)
        half = worker(server, redis, name, expire_after=100.0, max_pages=PAGES // 2)
        assert not (await half.run()).finished
        client = redis_client(redis.url)
        keys = list(client.scan_iter(match=f"lycosa:{{{name}.*"))
        assert {client.ttl(key) for key in keys} == {-1}, "the crawl is not finished"
        assert (await worker(server, redis, name, expire_after=100.0).run()).finished
        keys = list(client.scan_iter(match=f"lycosa:{{{name}.*"))
        assert keys
        assert all(0 < client.ttl(key) <= 100 for key in keys)
        client.close()
        shown = run_command("frontier", "status", "--frontier", redis.url, "--crawl-name", name, cwd=tmp_path).stdout
        assert re.search(r"^  expires   \d{4}-.* \(in \d", shown, re.MULTILINE), shown

    asyncio.run(scenario())


def test_a_stream_of_a_shared_crawl_yields_what_its_program_fetched(server: Server, redis: RedisServer) -> None:
    async def scenario() -> None:
        crawl = worker(server, redis, token_hex(4))
        assert_exactly_once([item["url"] async for item in crawl.stream()], urls(server))

    asyncio.run(scenario())


def test_a_program_that_the_others_have_removed_joins_again(
    server: Server, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, commits = Commits.commit, 0

    async def lost_once(self: Commits, positions: Any) -> None:
        nonlocal commits
        commits += 1
        if commits == 4:
            raise WorkerLost("the server no longer knows this worker")
        await commit(self, positions)

    async def scenario() -> None:
        crawl = worker(server, redis, token_hex(4), commit_acks=5)
        assert (await crawl.run()).finished
        assert_exactly_once([item["url"] for item in crawl.items], urls(server))

    monkeypatch.setattr(Commits, "commit", lost_once)
    asyncio.run(scenario())
    assert commits > 4


def test_an_output_needs_a_state() -> None:
    with pytest.raises(UsageError, match="a Crawl with frontier and output needs a state, too"):
        lycosa.Crawl("http://a.example/", frontier="redis://127.0.0.1:1/0", output="items.jsonl")
