"""Redis fails over during a crawl: workers wait, reconnect and continue. Pages may be repeated, none is lost (C3, C6).

Before a master is killed its replica is cut off from it, so that the last writes are missing after the failover. With a
single partition each item is nevertheless there once: the positions of the outputs go back together with the pages.
"""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from lycosa.queue import Queue
from tests.conftest import PROVE, need
from tests.frontier.e2e.test_shared_crawl import (
    COMMIT_ACKS,
    CONCURRENCY,
    END_MAX_S,
    HOSTS,
    Crawl,
    crawl,
    running_items,
)
from tests.pace import LATE_S
from tests.queues.e2e.members import wait_until
from tests.servers.clocks import find_gcc, make_clock
from tests.servers.redis import redis_cluster, redis_sentinels, redis_server

pytestmark = [pytest.mark.nginx, pytest.mark.redis]

PAGES = 10_000 if PROVE else 600
BEHIND_S = 0.4
WORKERS = 2
DELAY_S = "1.2"
"""The hosts have six pages each: with a shorter delay all of them are fetched before a master is killed, on a fast
machine or if this process is paused for some seconds.
"""


def start_workers(running: Crawl, home: Path, items: int) -> None:
    """Start the workers and wait for some items."""
    with running.together(WORKERS):
        for number in range(WORKERS):
            running.start(number)
    wait_for_items(home, items)


def wait_for_items(home: Path, items: int) -> None:
    wait_until(lambda: len(running_items(home)) >= items, END_MAX_S)


def wait_for_log(home: Path, number: int, text: str, times: int = 1) -> str:
    """Wait until a worker has logged a text. Return its whole log."""
    log = home / f"{number}.log"
    wait_until(lambda: log.read_text().count(text) >= times)
    return log.read_text()


def wait_until_paused(running: Crawl) -> int:
    """Wait until no more pages are requested. Return the number of requests."""
    count = -1
    while count != (now := len(running.requests())):
        count = now
        time.sleep(3.5)
    return count


@pytest.mark.parametrize(
    ("sentinels", "program"),
    [
        (1, "redis"),
        pytest.param(3, "redis", marks=pytest.mark.prove),
        pytest.param(3, "valkey", marks=[pytest.mark.prove, pytest.mark.valkey]),
    ],
)
def test_failover_by_sentinels(tmp_path: Path, sentinels: int, program: str) -> None:
    if sentinels > 1 and not PROVE:
        pytest.skip("make prove")
    with (
        redis_sentinels(count=sentinels, program=program) as watched,
        crawl(tmp_path, watched.url, "--delay", DELAY_S, pages=PAGES) as running,
    ):
        with Queue(f"{watched.url}?queue=q") as queue:
            queue.put("kept")
        start_workers(running, tmp_path, PAGES // 4)
        watched.nodes[0].fail(watched.nodes[1], BEHIND_S)
        running.wait()
        assert watched.master() is watched.nodes[1]
        with Queue(f"{watched.url}?queue=q") as queue:
            assert queue.get() == "kept"
        items = running.items()
        assert (set(items), items.total()) == (set(range(PAGES)), PAGES)
        log = (tmp_path / "0.log").read_text()
        assert "trying again for at most 60 s" in log
        assert "Traceback" not in log


@pytest.mark.prove
@pytest.mark.skipif(not PROVE, reason="make prove")
@pytest.mark.parametrize("first", [False, True])
def test_failover_of_masters_of_a_cluster(tmp_path: Path, first: bool) -> None:
    """The master of the first partition, which decides on commits, fails alone if it is `first`, else after another."""
    with (
        redis_cluster() as cluster,
        crawl(tmp_path, cluster.url, "--delay", DELAY_S, "-s", "partitions=8", pages=PAGES) as running,
    ):
        start_workers(running, tmp_path, PAGES // 4)
        keys = [f"lycosa:{{{running.name}.{number}}}:m" for number in range(8)]
        deciding = cluster.owner(keys[0])
        other = next(node for key in keys if (node := cluster.owner(key)) is not deciding)
        for count, master in enumerate([deciding] if first else [other, deciding], 2):
            master.fail(cluster.replica_of(master), BEHIND_S)
            wait_for_items(tmp_path, count * PAGES // 4)
        running.wait()
        items = running.items()
        print(items.total() - PAGES, "repeated items,", len(running.requests()) - PAGES, "repeated pages")
        assert set(items) == set(range(PAGES))
        assert "Traceback" not in (tmp_path / "0.log").read_text()


def test_the_crawl_pauses_while_the_server_is_full(tmp_path: Path) -> None:
    """The crawl reports it, can be stopped and resumed meanwhile, and continues by itself when there is space."""
    with redis_server() as server, crawl(tmp_path, server.url, "--delay", DELAY_S, pages=PAGES) as running:
        start_workers(running, tmp_path, PAGES // 5)
        server.cli("CONFIG", "SET", "maxmemory", "1mb")
        for number in range(WORKERS):
            log = wait_for_log(tmp_path, number, "paused: ")
            full = f"redis://127.0.0.1:{server.port}/0 has reached its maxmemory; the crawl resumes automatically"
            assert full in log
        requested = wait_until_paused(running)  # pages that were leased before are still fetched
        running.workers[0].send_signal(signal.SIGINT)
        assert running.workers[0].wait(END_MAX_S) == 130
        running.start(0)
        wait_for_log(tmp_path, 0, "paused: ", times=2)
        time.sleep(1.0)  # time enough to fetch something
        assert len(running.requests()) == requested < PAGES
        server.cli("CONFIG", "SET", "maxmemory", "0")
        running.wait()
        assert running.items() == dict.fromkeys(range(PAGES), 1)
        log = (tmp_path / "1.log").read_text()
        assert log.count("paused: ") == log.count("enough space again") == 1
        assert "Traceback" not in log + (tmp_path / "0.log").read_text()


def test_wrong_clocks_do_no_harm(tmp_path: Path) -> None:
    """The clocks of the workers are ten minutes off; that of Redis is set back by an hour, and forward by two."""
    need("gcc", find_gcc())
    worker_clocks = [make_clock(tmp_path, seconds) for seconds in (600, -600)]
    with (
        redis_server(environment=(clock := make_clock(tmp_path)).environment) as server,
        crawl(tmp_path, server.url, "--delay", "0.3", pages=PAGES) as running,
    ):
        running.environments = {number: worker_clock.environment for number, worker_clock in enumerate(worker_clocks)}
        start_workers(running, tmp_path, PAGES // 8)
        clock.set(-3600)
        wait_for_items(tmp_path, PAGES // 3)
        worker_clocks[0].set(-600)
        wait_for_items(tmp_path, PAGES // 2)
        clock.set(3600)
        running.wait()
        assert running.items() == dict.fromkeys(range(PAGES), 1)
        logs = [(tmp_path / f"{number}.log").read_text() for number in range(WORKERS)]
        rejoins = sum(log.count("this worker rejoins") for log in logs)
        assert rejoins <= 1, "a busy machine may pause one worker until it expires"
        assert len(running.requests()) - PAGES <= rejoins * (CONCURRENCY + COMMIT_ACKS)
        early = [gap for gap in running.gaps() if gap < 0.3 - LATE_S]
        assert len(early) <= HOSTS, "all delays end once, when the clock of Redis jumps forward"
