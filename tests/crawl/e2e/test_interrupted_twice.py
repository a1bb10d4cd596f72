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

from tests.cli.command import assert_exactly_once, interrupt, items, lycosa, started
from tests.servers.proxies import Microsocks, running
from tests.servers.redis import redis_server
from tests.servers.tree import grow

pytestmark = pytest.mark.redis

AT_ONCE_S = 4.5
"""The promise is two seconds. This allows for a busy machine, and is less than the grace of one interrupt (5 s)."""

PAGES = 60
FILE = ("-o", "items.jsonl")
POOL = ("--proxy-pool", "{redis}?pool=shop")
PAGES_LOST, PROXIES_LOST = "pages since the last commit are fetched again", "leased proxies come back when"
KINDS = {
    "frontier": (("--frontier", "{redis}", *FILE), PAGES_LOST),
    "pool": ((*POOL, *FILE), PROXIES_LOST),
    "processes": ((*POOL, *FILE, "--processes", "2"), PROXIES_LOST),
    "both": (("--frontier", "{redis}", *POOL, *FILE), f"{PAGES_LOST}; {PROXIES_LOST}"),
    "stream": (("-o", "{redis}?stream=shop"), "the state is saved: the same command resumes the crawl"),
}


@pytest.mark.proxies
@pytest.mark.parametrize("how", ["kill", "pause"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_second_interrupt_waits_for_no_server(tmp_path: Path, kind: str, how: str) -> None:
    options, lost = KINDS[kind]
    with ExitStack() as stack:
        server = stack.enter_context(redis_server(append="always"))
        tree = stack.enter_context(grow(PAGES))
        words = ["crawl", tree.url, "--delay", "0.05", *(each.format(redis=server.url) for each in options)]
        if "--proxy-pool" in words:
            proxies = stack.enter_context(running(Microsocks(), Microsocks()))
            filled = ("proxies", "add", *(each.url for each in proxies), "--pool", f"{server.url}?pool=shop")
            assert lycosa(*filled, cwd=tmp_path).returncode == 0
        crawl = stack.enter_context(started(*words, cwd=tmp_path))
        assert crawl.until(lambda: len(tree.hits()) > PAGES // 10)
        getattr(server, how)()
        time.sleep(0.7)  # what is under way asks the server something, and has no answer
        interrupt(crawl.process)
        began = time.monotonic()
        crawl.process.send_signal(signal.SIGINT)
        assert crawl.end() == 130, crawl.stderr
        took_s = time.monotonic() - began
        assert took_s < AT_ONCE_S, crawl.stderr
        assert lost in crawl.stderr
        assert "Traceback" not in crawl.stderr
        if how == "pause":
            server.resume()
            done = lycosa(*words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            if FILE[1] in words:
                assert_exactly_once([item["url"] for item in items(tmp_path / FILE[1])], tree.urls())


@pytest.mark.proxies
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_a_second_interrupt_of_a_forward_proxy_waits_for_no_server(tmp_path: Path, how: str) -> None:
    with redis_server() as server, grow(5) as tree, running(Microsocks()) as (proxy,):
        pool = ("--pool", f"{server.url}?pool=shop")
        assert lycosa("proxies", "add", proxy.url, *pool, cwd=tmp_path).returncode == 0
        words = ("proxies", "serve", *pool, "--bind", "127.0.0.1:0", "--ports", "1-65535", "--allow-private", "*")
        with started(*words, cwd=tmp_path) as gateway:
            assert gateway.until(lambda: b"\n" in gateway.stdout)
            port = int(re.findall(rb"127\.0\.0\.1:(\d+)", gateway.stdout)[0])
            client = asking(port, tree.url)
            assert client.recv(1000).startswith(b"HTTP/1.1 200 ")
            getattr(server, how)()
            others = [asking(port, tree.url) for _ in range(3)]
            time.sleep(0.7)  # they wait for the server
            interrupt(gateway.process)
            began = time.monotonic()
            gateway.process.send_signal(signal.SIGINT)
            assert gateway.end() == 130, gateway.stderr
            assert time.monotonic() - began < AT_ONCE_S, gateway.stderr
            assert PROXIES_LOST in gateway.stderr
            assert "Traceback" not in gateway.stderr
            for each in (client, *others):
                each.close()


def asking(port: int, url: str) -> socket.socket:
    """Request a page from a forward proxy."""
    client = socket.create_connection(("127.0.0.1", port), timeout=20)
    client.sendall(f"GET {url} HTTP/1.1\r\nHost: {urlsplit(url).netloc}\r\n\r\n".encode())
    return client
