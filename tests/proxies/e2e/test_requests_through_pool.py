"""Pools in programs: requests through real proxies, one of them down, to a site that bans."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import requests

from lycosa.pool import NoProxy, open_pool
from lycosa.proxies.core.pool.target_state import ProxyState
from tests.servers.ports import closed_port
from tests.servers.proxy import proxying

SITE = "shop.example"
ROUNDS = 20


@asynccontextmanager
async def site() -> AsyncIterator[int]:
    """Serve a site that forbids /no. Yield its port."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]
        is_refused = b"/no " in line
        head = b"403 Forbidden\r\nRetry-After: 600" if is_refused else b"200 OK"
        writer.write(b"HTTP/1.1 " + head + b"\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def test_requests_through_a_pool_report_failures_and_bans(tmp_path: Path) -> None:
    async def main() -> None:
        hosts = {SITE: "127.0.0.1"}
        async with (
            site() as port,
            proxying(user="ann", password="secret", hosts=hosts) as first,
            proxying(hosts=hosts) as second,
            open_pool(tmp_path / "pool", create=True) as pool,
        ):
            dead = f"http://127.0.0.1:{closed_port()}"
            await pool.add(first.url_with_login, second.url, dead)
            found = Counter[str]()
            for _ in range(ROUNDS):
                found[await fetch(pool, f"http://{SITE}:{port}/yes")] += 1
            assert 1 <= found["ProxyError"] < ROUNDS / 2, "the dead proxy cools down after failures"
            assert found["200"] == ROUNDS - found["ProxyError"] == len(first.requests) + len(second.requests)
            assert min(len(first.requests), len(second.requests)) > 0
            (down,) = [view for view in await pool.proxies(SITE) if view.proxy.url == dead]
            assert down.reason == "ProxyError"
            await pool.ban(SITE, down.proxy.key)
            assert await fetch(pool, f"http://{SITE}:{port}/no") == "403"
            states = [view.state for view in await pool.proxies(SITE) if view.reason == "403"]
            assert states == [ProxyState.COOLING]
            async with pool.lease("other.example", n=2), pool.lease(SITE):
                with pytest.raises(NoProxy, match="1 leased"):
                    async with pool.lease(SITE, wait_s=0.0):
                        pass

    asyncio.run(main())


async def fetch(pool: object, url: str) -> str:
    """Fetch a page through a proxy of the pool. Return the status, or the name of the error."""
    try:
        async with pool.lease(SITE) as proxy:  # type: ignore[attr-defined]
            response = await asyncio.to_thread(requests.get, url, proxies=proxy.proxies, timeout=20)
            proxy.report(response)
            return str(response.status_code)
    except requests.RequestException as error:
        return type(error).__name__
