"""A transfer that ends frees the slot of its host, while its callback still runs (C5).

The tests run on every back end, and with two worker processes.
"""

from __future__ import annotations

import asyncio
import runpy
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

import lycosa
from tests.cli import command
from tests.conftest import PROVE, REDIS, need
from tests.servers.redis import find_redis, redis_server

PAGES, CONCURRENCY, PER_HOST = 96, 64, 8
CALLBACK_S, RETRY_AFTER_S, ERRBACK_MAX_S = 1.0, 1, 20.0
END_MAX_S = 4.0
"""The callbacks would take 12 s (96 / 8) if they held the slots of their host."""
SPIDERS = f"""
import asyncio, time
from pathlib import Path
from lycosa import Request, Spider

FETCHED = Path(__file__).with_name("fetched")

class Slow(Spider):
    name = "slow"
    site = ""
    custom_settings = {{"robots": False, "concurrency": {CONCURRENCY}, "concurrency_per_host": {PER_HOST}}}

    async def start(self):
        for n in range({PAGES}):
            yield Request(f"{{self.site}}/{{n}}")

    async def parse(self, response):
        started = time.time()
        await asyncio.sleep({CALLBACK_S})
        yield {{"started": started, "ended": time.time()}}

class Refused(Spider):
    name = "refused"
    site = ""
    custom_settings = {{"robots": False, "concurrency_per_host": 1, "retries": 0}}

    async def start(self):
        yield Request(f"{{self.site}}/refused", errback=self.failed, priority=1)
        yield Request(f"{{self.site}}/next")

    async def failed(self, failure):
        until = time.monotonic() + {ERRBACK_MAX_S}
        while not FETCHED.exists() and time.monotonic() < until:
            await asyncio.sleep(0.01)
        yield {{"failed": time.time()}}

    def parse(self, response):
        FETCHED.touch()
        yield {{"next": time.time()}}
"""
Crawl = Callable[[str, str], list[Any]]
"""Crawls a site with one of the spiders. Returns the items."""


@pytest.fixture(params=["memory", "local", "processes", "redis"])
def crawl(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Crawl]:
    file = tmp_path / "spiders.py"
    file.write_text(SPIDERS)

    def by_command(*options: object) -> Crawl:
        def run(spider: str, site: str) -> list[Any]:
            arguments = ("runspider", f"spiders.py:{spider.title()}", "-a", f"site={site}", "-o", "items.jsonl")
            done = command.lycosa(*arguments, "-q", "--state", token_hex(4), *options, cwd=tmp_path)
            assert (done.returncode, done.stderr) == (0, "")
            return command.items(tmp_path / "items.jsonl")

        return run

    def in_memory(spider: str, site: str) -> list[Any]:
        program = lycosa.Crawl(runpy.run_path(str(file))[spider.title()], spider_args={"site": site})
        asyncio.run(program.run())
        return program.items

    if request.param == "redis":
        need(REDIS, find_redis())
        with redis_server() as server:
            yield by_command("--frontier", server.url)
    elif request.param == "memory":
        yield in_memory
    else:
        yield by_command("--processes", 2 if request.param == "processes" else 1)


class Site:
    """`fetched` is when each path was requested (unix seconds). `/refused` is overloaded."""

    def __init__(self) -> None:
        self.url = ""
        self.fetched: dict[str, float] = {}
        self.transfers = self.transfers_max = 0
        self.lock = threading.Lock()

    def begin(self, path: str) -> None:
        with self.lock:
            self.fetched[path] = time.time()
            self.transfers += 1
            self.transfers_max = max(self.transfers, self.transfers_max)

    def end(self) -> None:
        with self.lock:
            self.transfers -= 1


@contextmanager
def open_site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.begin(self.path)
            refused = self.path == "/refused"
            self.send_response(503 if refused else 200)
            if refused:
                self.send_header("Retry-After", str(RETRY_AFTER_S))
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "4")
            site.end()
            self.end_headers()
            self.wfile.write(b"text")

        def log_message(self, *_: object) -> None:
            """Do not log."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        site.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def test_callbacks_hold_no_slot_of_their_host(crawl: Crawl) -> None:
    with open_site() as site:
        found = crawl("slow", site.url)
    assert len(found) == PAGES
    took_s = max(item["ended"] for item in found) - min(item["started"] for item in found)
    at_once = max(sum(item["started"] <= each["started"] < item["ended"] for item in found) for each in found)
    print(f"{took_s:.2f} s, {at_once} callbacks at a time")
    assert PER_HOST < at_once <= CONCURRENCY
    assert site.transfers_max <= PER_HOST
    assert took_s < (END_MAX_S if PROVE else PAGES / PER_HOST * CALLBACK_S)


def test_a_refusal_counts_before_the_next_lease_of_its_host(crawl: Crawl) -> None:
    with open_site() as site:
        found = {name: at for item in crawl("refused", site.url) for name, at in item.items()}
    waited_s = site.fetched["/next"] - site.fetched["/refused"]
    assert waited_s >= RETRY_AFTER_S - 0.1, "the host was asked again before its Retry-After"
    assert site.fetched["/next"] < found["failed"], "the errback held the slot of the host"
