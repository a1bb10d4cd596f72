"""Ctrl-C twice ends a crawl at once, even if a Redis that it needs is down (C3, P5); the same command resumes it."""

from __future__ import annotations

import re
import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.cli.command import AT_ONCE_S, PATIENT, assert_exactly_once, interrupt, items, lycosa, start_command
from tests.servers.proxies import Microsocks, running
from tests.servers.redis import redis_server
from tests.servers.tree import grow

pytestmark = pytest.mark.redis

PAGES, PAGES_BEFORE = 120, 6
"""`PAGES_BEFORE` are fetched before Redis fails; the others take long enough for the crawl not to end before."""

FILE = ("-o", "items.jsonl")
POOL = ("--proxy-pool", "{redis}?pool=shop")
PAGES_LOST = "pages fetched since the last commit are fetched again"
PROXIES_LOST = "leased proxies are free again when"
KINDS = {
    "frontier": (("--frontier", "{redis}", *FILE), PAGES_LOST),
    "pool": ((*POOL, *FILE), PROXIES_LOST),
    "processes": ((*POOL, *FILE, "--processes", "2"), PROXIES_LOST),
    "both": (("--frontier", "{redis}", *POOL, *FILE), f"{PAGES_LOST}; {PROXIES_LOST}"),
    "stream": (("-o", "{redis}?stream=shop"), "the state is saved: the same command resumes the crawl"),
}


@pytest.mark.proxies
@pytest.mark.parametrize("failure", ["kill", "pause"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_second_interrupt_of_a_crawl_does_not_wait_for_redis(tmp_path: Path, kind: str, failure: str) -> None:
    options, lost = KINDS[kind]
    with ExitStack() as stack:
        server = stack.enter_context(redis_server(append="always"))
        tree = stack.enter_context(grow(PAGES))
        command = ["crawl", tree.url, "--delay", "0.05", *(each.format(redis=server.url) for each in options)]
        if "--proxy-pool" in command:
            proxies = stack.enter_context(running(Microsocks(), Microsocks()))
            add = ("proxies", "add", *(each.url for each in proxies), "--pool", f"{server.url}?pool=shop")
            assert lycosa(*add, cwd=tmp_path).returncode == 0
        crawl = stack.enter_context(start_command(*command, cwd=tmp_path, program=PATIENT))
        assert crawl.until(lambda: len(tree.hits()) > PAGES_BEFORE)
        getattr(server, failure)()
        time.sleep(0.7)  # until transfers under way wait for an answer of Redis
        interrupt(crawl.process)
        interrupted_at = time.monotonic()
        crawl.process.send_signal(signal.SIGINT)
        assert crawl.end() == 130, crawl.stderr
        took_s = time.monotonic() - interrupted_at
        assert took_s < AT_ONCE_S, crawl.stderr
        assert lost in crawl.stderr
        assert "Traceback" not in crawl.stderr
        if failure == "pause":
            server.resume()
            done = lycosa(*command, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            if FILE[1] in command:
                assert_exactly_once([item["url"] for item in items(tmp_path / FILE[1])], tree.urls())


@pytest.mark.proxies
@pytest.mark.parametrize("failure", ["kill", "pause"])
def test_a_second_interrupt_of_a_forward_proxy_does_not_wait_for_redis(tmp_path: Path, failure: str) -> None:
    with redis_server() as server, grow(5) as tree, running(Microsocks()) as (proxy,):
        pool = ("--pool", f"{server.url}?pool=shop")
        assert lycosa("proxies", "add", proxy.url, *pool, cwd=tmp_path).returncode == 0
        command = ("proxies", "serve", *pool, "--bind", "127.0.0.1:0", "--ports", "1-65535", "--allow-private", "*")
        command = (*command, "--grace", "60")
        with start_command(*command, cwd=tmp_path) as gateway:
            assert gateway.until(lambda: b"\n" in gateway.stdout)
            port = int(re.findall(rb"127\.0\.0\.1:(\d+)", gateway.stdout)[0])
            client = request_page(port, tree.url)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            getattr(server, failure)()
            waiting = [request_page(port, tree.url) for _ in range(3)]
            time.sleep(0.7)  # until the requests wait for Redis
            interrupt(gateway.process)
            interrupted_at = time.monotonic()
            gateway.process.send_signal(signal.SIGINT)
            assert gateway.end() == 130, gateway.stderr
            assert time.monotonic() - interrupted_at < AT_ONCE_S, gateway.stderr
            assert PROXIES_LOST in gateway.stderr
            assert "Traceback" not in gateway.stderr
            for each in (client, *waiting):
                each.close()


def request_page(port: int, url: str) -> socket.socket:
    """Request a page from a forward proxy."""
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(f"GET {url} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    return client
