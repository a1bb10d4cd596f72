"""Ctrl-C twice ends a crawl at once, also when the Redis that it needs is away (C3, P5), and the same command goes on."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.command import assert_exactly_once, items, lycosa, started
from tests.servers.proxies import Microsocks, running
from tests.servers.redis import redis_server
from tests.servers.tree import grow

pytestmark = pytest.mark.redis

AT_ONCE_S = 3.0
"""Two seconds are promised; one more for a busy machine."""

PAGES = 60
FILE = ("-o", "items.jsonl")
POOL = ("--proxy-pool", "{redis}?pool=shop")
PAGES_LOST, PROXIES_LOST = "pages since the last commit are fetched again", "proxies on loan come back when"
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
        crawl.process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        crawl.process.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert crawl.end() == 130, crawl.said
        took_s = time.monotonic() - began
        assert took_s < AT_ONCE_S, crawl.said
        assert lost in crawl.said
        assert "Traceback" not in crawl.said
        if how == "pause":
            server.resume()
            done = lycosa(*words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            if FILE[1] in words:
                assert_exactly_once([item["url"] for item in items(tmp_path / FILE[1])], tree.urls())
