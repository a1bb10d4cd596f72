"""A crawl on Valkey in place of Redis: on one server, and on a cluster (C3, C6).

The single calls are covered by the contract tests of the frontier, its operations, the queue and the sinks, which run
on Valkey too.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.command import lycosa
from tests.conftest import PROVE
from tests.frontier.e2e.test_shared_crawl import Crawl, crawl
from tests.frontier.e2e.test_shared_failover import wait_for_items
from tests.servers.redis import RedisServer, redis_cluster, redis_server

pytestmark = [pytest.mark.nginx, pytest.mark.valkey]

PAGES = 6_000 if PROVE else 600
OPTIONS = ("--delay", "0.1", "-s", "partitions=3")


def crawl_with_kills(running: Crawl, server: RedisServer) -> None:
    """Kill a worker and the server during the crawl."""
    with running.together(2):
        for number in range(2):
            running.start(number)
    wait_for_items(running.home, PAGES // 5)
    running.kill(0)
    running.start(0)
    wait_for_items(running.home, PAGES // 2)
    server.kill()
    server.start()
    running.wait()
    assert running.items() == dict.fromkeys(range(PAGES), 1)
    options = ("--frontier", running.frontier, "--crawl-name", running.name)
    verified = lycosa("frontier", "verify", *options, cwd=running.home)
    assert verified.returncode == 0, verified.stdout + verified.stderr


def test_a_worker_and_the_server_are_killed(tmp_path: Path) -> None:
    with (
        redis_server(program="valkey", append="everysec") as server,
        crawl(tmp_path, server.url, *OPTIONS, pages=PAGES) as running,
    ):
        assert "server_name:valkey" in server.cli("INFO", "server")
        crawl_with_kills(running, server)


@pytest.mark.prove
@pytest.mark.skipif(not PROVE, reason="make prove")
def test_a_worker_and_a_master_of_a_cluster_are_killed(tmp_path: Path) -> None:
    """The master is restarted before its replica takes over."""
    with (
        redis_cluster(program="valkey", append="everysec", cluster_node_timeout=15000) as cluster,
        crawl(tmp_path, cluster.url, *OPTIONS, pages=PAGES) as running,
    ):
        crawl_with_kills(running, cluster.owner(f"lycosa:{{{running.name}.0}}:m"))
