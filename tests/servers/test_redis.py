"""The Redis servers that other tests rely on: started, stopped, restarted; they leave nothing behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, need
from tests.servers.redis import MASTERS, RedisFailed, redis_server
from tests.servers.test_nginx import wait_for_exit

pytestmark = pytest.mark.redis


def test_a_server_restarts_with_or_without_its_data():
    with redis_server(append="always", password="a secret") as server:
        url = server.url
        server.cli("SET", "name", "value")
        server.kill()
        with pytest.raises(RedisFailed, match="refused"):
            server.cli("PING")
        server.start()
        assert (server.cli("GET", "name"), server.url) == ("value", url)
        server.stop()
        server.start(keep=False)
        assert server.cli("GET", "name") == ""
        process, home = server.process, server.home
    assert process.poll() is not None
    assert not home.exists()


def test_maxmemory_and_tls():
    with redis_server(maxmemory="3mb", policy="allkeys-lru", tls=True) as server:
        assert server.url.startswith("rediss://")
        assert "maxmemory_policy:allkeys-lru" in server.cli("INFO", "memory")


def test_a_cluster_is_complete(cluster):
    assert cluster.is_complete()
    first = cluster.owner("some key")
    assert first.cli("SET", "some key", "1") == "OK"
    assert len({cluster.owner(f"key {number}").port for number in range(50)}) == MASTERS


def test_a_server_dies_with_its_parent():
    need("setpriv (util-linux)", Path("/usr/bin/setpriv").exists())
    program = """
import os, signal
from tests.servers.redis import redis_server
with redis_server() as server:
    print(server.process.pid, server.home, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pid, home = done.stdout.split(maxsplit=1)
    wait_for_exit(int(pid), 60.0)
    shutil.rmtree(home.strip())
