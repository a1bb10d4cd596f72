"""A crawl that writes to a Redis stream and is killed repeatedly, and the readers of the stream (C3, C8, F4)."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from textwrap import dedent

import pytest
import redis

from lycosa import Crawl
from tests.cli.command import LYCOSA, assert_exactly_once, assert_one_line, environment, lycosa, start_command
from tests.conftest import PROVE, ROOT
from tests.servers.nginx import serve
from tests.servers.redis import RedisServer, redis_server
from tests.storage.contracts.test_redis_stream import Stream, masters, sentinels

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES = 6_000 if PROVE else 600
KILLS = 20 if PROVE else 3
ITEMS_OF_A_PAGE = 2
DELAY_S = 0.02
END_MAX_S = 300.0

PAGE = 'location = /page { default_type text/html; return 200 "<title>x</title>$arg_n"; }'
SPIDER = f"""
    from lycosa import Request, Spider

    class Small(Spider):
        name = "small"
        port = ""

        async def start(self):
            yield Request(self.url_of(0), cb_kwargs={{"n": 0}})

        def parse(self, response, n):
            for number in range({ITEMS_OF_A_PAGE}):
                yield {{"n": n, "number": number}}
            for child in range(10 * n + 1, min(10 * n + 11, {PAGES})):
                yield Request(self.url_of(child), cb_kwargs={{"n": child}})

        def url_of(self, n):
            return f"http://h{{n % 20}}.localhost:{{self.port}}/page?n={{n}}"
"""


@pytest.fixture
def port(tmp_path: Path) -> Iterator[str]:
    """The port of the pages."""
    (tmp_path / "site").mkdir()
    (tmp_path / "spider.py").write_text(dedent(SPIDER))
    with serve(tmp_path / "site", log=False, extra=PAGE) as server:
        yield server.url.rpartition(":")[2]


def address(server: RedisServer, options: str = "") -> str:
    return f"{server.url}?stream={token_hex(4)}{options}"


def spider(port: str, output: str, *more: object) -> list[object]:
    return ["runspider", "spider.py", "-a", f"port={port}", "-o", output, "--no-robots", "--delay", DELAY_S, *more]


def entries(output: str) -> list[dict[str, str]]:
    server, _, stream = output.partition("?stream=")
    with redis.Redis.from_url(server, decode_responses=True) as client:
        return [fields for _, fields in client.xrange(stream.partition("&")[0])]


def length(output: str) -> int:
    server, _, stream = output.partition("?stream=")
    with redis.Redis.from_url(server) as client:
        return int(client.xlen(stream))


def await_entries(output: str) -> None:
    """Wait for a further entry, for at most a second."""
    server, _, stream = output.partition("?stream=")
    with redis.Redis.from_url(server) as client:
        client.xread({stream: "$"}, block=1000)


def expected() -> set[str]:
    return {f"{n} {number}" for n in range(PAGES) for number in range(ITEMS_OF_A_PAGE)}


def identity(item: str) -> str:
    found = json.loads(item)
    return f"{found['n']} {found['number']}"


def assert_once(found: list[dict[str, str]]) -> None:
    """Assert that each item is in the stream once, with its own key."""
    assert_exactly_once([identity(entry["item"]) for entry in found], expected())
    assert len({entry["key"] for entry in found}) == len(found)


@contextmanager
def consumer(home: Path, output: str, name: str, idle_s: int = 1000) -> Iterator[subprocess.Popen[bytes]]:
    """Run the example program, which ends after `idle_s` without an item."""
    server, _, stream = output.partition("?stream=")
    program = [sys.executable, str(ROOT / "examples" / "consume_stream.py")]
    process = subprocess.Popen(
        [*program, server, stream, name, "items.sqlite", str(idle_s)], cwd=home, env=environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_a_killed_crawl_writes_each_item_once(tmp_path, redis, port, rng):
    """Readers that deduplicate by key get each item once, too."""
    output = address(redis)
    command = spider(port, output)
    with consumer(tmp_path, output, "one") as first, consumer(tmp_path, output, "two") as second:
        for _ in range(KILLS):
            with start_command(*command, cwd=tmp_path) as run:
                before = length(output)
                run.until(lambda before=before: length(output) > before)
                time.sleep(rng.uniform(0.0, 0.3))
                await_entries(output)  # the entries are written, but probably not committed
                run.kill()
        second.kill()
        done = lycosa(*command, cwd=tmp_path, timeout_s=END_MAX_S)
        assert done.returncode == 0, done.stderr
        assert_once(entries(output))
        second_run = lycosa(*command, cwd=tmp_path)
        assert (second_run.returncode, "nothing to do" in second_run.stderr) == (0, True)
        assert_once(entries(output))
        assert first.poll() is None
    with consumer(tmp_path, output, "one", 1) as first, consumer(tmp_path, output, "two", 1) as second:
        assert (first.wait(END_MAX_S), second.wait(END_MAX_S)) == (0, 0), "each consumer finishes its pending items"
    with sqlite3.connect(tmp_path / "items.sqlite") as table:
        rows = table.execute("SELECT key, item FROM items").fetchall()
    assert_exactly_once([identity(item) for _, item in rows], expected())
    assert {key for key, _ in rows} == {entry["key"] for entry in entries(output)}


def test_workers_of_a_shared_crawl_share_the_stream(tmp_path, redis, port, rng):
    output = address(redis)
    shared = ("--frontier", redis.url, "--crawl-name", token_hex(4))
    workers: dict[int, subprocess.Popen[bytes]] = {}

    def start(number: int) -> None:
        arguments = spider(port, output, *shared, "--state", f"state{number}")
        command = [*LYCOSA, "worker", *map(str, arguments[1:])]
        with (tmp_path / f"{number}.log").open("ab") as log:
            workers[number] = subprocess.Popen(command, cwd=tmp_path, env=environment(), stderr=log)

    try:
        for number in range(3):
            start(number)
        for _ in range(KILLS):
            time.sleep(rng.uniform(0.3, 0.8))
            number = rng.choice(list(workers))
            workers[number].kill()
            workers[number].wait()
            start(number)
        codes = [worker.wait(END_MAX_S) for worker in workers.values()]
        logs = [(tmp_path / f"{number}.log").read_text()[-1500:] for number in workers]
    finally:
        for worker in workers.values():
            with suppress(OSError):
                worker.kill()
            worker.wait()
    assert codes == [0, 0, 0], logs
    assert_once(entries(output))


def test_a_restart_of_the_server_loses_nothing(tmp_path, port):
    with redis_server(append="everysec") as server:
        output = address(server)
        with start_command(*spider(port, output), cwd=tmp_path) as run:
            run.until(lambda: length(output) > 50)
            server.kill()
            server.start()
            assert run.end() == 0, run.stderr
        assert_once(entries(output))


@pytest.mark.prove
@pytest.mark.skipif(not PROVE, reason="make prove")
@pytest.mark.parametrize("failing", [sentinels, masters])
def test_a_failover_to_a_replica_loses_nothing(tmp_path, port, failing):
    with failing() as (output, master, replica), start_command(*spider(port, output), cwd=tmp_path) as run:
        run.until(lambda: int(master.cli("XLEN", "s")) > PAGES // 4)
        master.fail(replica, 0.4)
        assert run.end() == 0, run.stderr
        assert "they are sent again" in run.stderr
        assert_once(Stream(replica, "s").entries())


def test_a_full_server_pauses_the_crawl(tmp_path, port):
    with redis_server() as server:
        output = address(server)
        # The longer delay keeps the crawl from ending before the server is full.
        with start_command(*spider(port, output, "--delay", 0.15), cwd=tmp_path) as run:
            run.until(lambda: length(output) > 50)
            server.cli("CONFIG", "SET", "maxmemory", "1mb")
            assert run.until(lambda: "has reached its maxmemory" in run.stderr)
            assert run.process.poll() is None
            server.cli("CONFIG", "SET", "maxmemory", "0")
            assert run.end() == 0, run.stderr
            assert "the server answers again" in run.stderr
        assert_once(entries(output))


def test_overwriting_starts_the_stream_afresh(tmp_path, redis, port):
    output = address(redis)
    for letter in ("-o", "-O"):
        command = [letter if word == "-o" else word for word in spider(port, output)]
        done = lycosa(*command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert_once(entries(output))
        assert f"items   {output}\n" in done.stderr


def test_a_crawl_without_a_spider_writes_to_stream_and_index(tmp_path, redis, port):
    """The index reads its own copy of the items."""
    output = address(redis, "&maxlen=100000")
    done = lycosa("crawl", f"http://h0.localhost:{port}/page?n=1", "-o", output, "--index", "index", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (entry,) = entries(output)
    assert json.loads(entry["item"])["url"] == entry["url"] == f"http://h0.localhost:{port}/page?n=1"
    assert entry["key"].endswith(f"/{json.loads(entry['item'])['fingerprint']}/0")
    assert entry["url"] in lycosa("search", "x", "--index", "index", cwd=tmp_path).stdout


def test_a_crawl_inside_a_program_writes_to_the_stream(tmp_path, redis, port):
    output = address(redis)
    url = f"http://h0.localhost:{port}/page?n=1"

    async def crawl() -> None:
        async with Crawl(url, output=output, state=str(tmp_path / "state"), robots=False) as crawl:
            assert (await crawl.run()).items_path == output

    asyncio.run(crawl())
    assert [entry["url"] for entry in entries(output)] == [url]


def test_the_document_contains_the_code_of_the_example():
    text = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    shown = text.partition("```python\n")[2].partition("```")[0].splitlines()
    example = (ROOT / "examples" / "consume_stream.py").read_text(encoding="utf-8")
    assert [line for line in shown if line.partition("  #")[0].strip() not in example] == []


@pytest.mark.parametrize(
    ("server", "output", "message"),
    [
        ({}, "redis://127.0.0.1:{port}/0", "-o: redis://127.0.0.1:{port}/0: name the stream"),
        ({}, "redis://:hidden@127.0.0.1:{port}/0?queue=a", "unknown option 'queue'"),
        ({}, "kafka://127.0.0.1/items", "-o: kafka://127.0.0.1/items: items go to a file, or to a stream in Redis"),
        ({"password": "right"}, "redis://:hidden@127.0.0.1:{port}/0?stream=a", "rejects this user and password"),
        ({}, "redis://127.0.0.1:1/0?stream=a", "the connection was refused: is Redis running there?"),
    ],
)
def test_unusable_outputs_are_explained_in_one_line(tmp_path, server, output, message):
    with redis_server(**server) as running:
        address = output.format(port=running.port)
        done = lycosa("crawl", "http://127.0.0.1:9/", "-o", address, "-q", cwd=tmp_path)
    assert done.returncode in (2, 3)
    assert message.format(port=running.port) in assert_one_line(done.stderr)
    assert "hidden" not in done.stderr
    assert not list(tmp_path.glob("*redis*")), "no file of this name is created"
