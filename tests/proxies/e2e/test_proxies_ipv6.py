"""Real proxies at an IPv6 address (P6): added, checked, leased, used by a crawl and by the forward proxy."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from collections import Counter
from pathlib import Path

import pytest

from lycosa.pool import open_pool
from lycosa.proxies.checking.judge_server import run_judge
from tests.cli.command import items, lycosa, start_command
from tests.conftest import need
from tests.servers.banning import banning
from tests.servers.proxies import Microsocks, Tinyproxy, running

pytestmark = pytest.mark.proxies

LOOPBACK = "::1"
SERVES = re.compile(rb"Forward proxy: http://\[::1\]:(\d+)")
ANN = {"user": "ann", "password": "secret", "address": LOOPBACK}


def has_ipv6() -> bool:
    """Whether this machine has the IPv6 loopback address."""
    try:
        with socket.create_server((LOOPBACK, 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def fetch_status(port: int, url: str) -> int:
    """Fetch a URL through the forward proxy at [::1]. Return the status."""
    with socket.create_connection((LOOPBACK, port), timeout=20) as client:
        host = url.split("/")[2]
        client.sendall(f"GET {url} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        return int(client.makefile("rb").readline().split()[1])


def test_proxies_at_an_ipv6_address_work_everywhere(tmp_path: Path) -> None:
    need("IPv6 on loopback", has_ipv6())
    pool = ("--pool", "pool")

    async def run(*words: object) -> str:
        result = await asyncio.to_thread(lycosa, *words, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        return result.stdout

    async def main() -> None:
        async with asyncio.timeout(100), run_judge() as judge, banning(pages=20) as server:
            (tmp_path / "list").write_text(f"[::1]:{http.port}:ann:secret\n{socks.url}\n")
            await run("proxies", "add", "list", *pool)
            found = (await run("proxies", "check", *pool, "--judge", judge.address.url, "--json")).splitlines()
            assert sorted(json.loads(line)["exit_ip"] for line in found) == sorted([http.exit, socks.exit])

            async with open_pool(tmp_path / "pool") as opened, opened.lease("shop.example", n=2) as lease:
                assert {each.url for each in lease} == {http.url, socks.url}

            await run("crawl", server.url(), "--proxy-pool", "pool", "-o", "items.jsonl")
            assert len(items(tmp_path / "items.jsonl")) == 20
            before = server.by_client()
            assert set(before) == {http.exit, socks.exit}

            options = ("--bind", "[::1]:0", "--ports", "1-65535", "--allow-private", "*")
            with start_command("proxies", "serve", *pool, *options, cwd=tmp_path) as process:
                assert await asyncio.to_thread(process.until, lambda: SERVES.search(process.stdout) is not None)
                port = int(SERVES.search(process.stdout)[1])  # type: ignore[index]
                for number in range(6):
                    assert await asyncio.to_thread(fetch_status, port, server.url(f"/page/{number + 1}")) == 200
            used = Counter(server.by_client()) - Counter(before)
            assert (sum(used.values()), set(used) <= {http.exit, socks.exit}) == (6, True)

    with running(Tinyproxy(**ANN), Microsocks(**ANN)) as (http, socks):
        asyncio.run(main())
