"""Shared by the contract tests of fetchers: runs a scenario with a fetcher and a misbehaving server on a loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from lycosa.http.core.model import HttpResponse
from lycosa.http.core.request import Request
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from tests.servers.misbehaving import Server, serving

Play = Callable[[CurlFetcher, Server], Awaitable[Any]]
LOOPS = {"uvloop": uvloop.new_event_loop, "asyncio": asyncio.new_event_loop}
TEST_MAX_S = 60.0
BESIDE = ("127.0.0.2", "127.0.0.3", "127.0.0.9", "::1")
"""Further loopback addresses. The port of the server is reserved there: tests start other servers on it, or none."""


def runner_for(name: str) -> Callable[..., Any]:
    """Return a function that runs `async def scenario(fetcher, server)` on this kind of loop. It fails if the loop
    reports an error or a socket is left open.
    """

    def runner(scenario: Play, **settings: Any) -> Any:
        complaints: list[Any] = []

        async def main() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
            async with asyncio.timeout(TEST_MAX_S), serving(beside=BESIDE) as server:
                async with fetching(**settings) as fetcher:
                    result = await scenario(fetcher, server)
                await wait_until(lambda: server.open_connections == 0)
                return result

        with asyncio.Runner(loop_factory=LOOPS[name]) as loop:
            result = loop.run(main())
        assert complaints == []
        return result

    return runner


@asynccontextmanager
async def fetching(**settings: Any) -> AsyncIterator[CurlFetcher]:
    fetcher = CurlFetcher(FetchSettings(**{"timeout_s": 20.0, "connect_timeout_s": 15.0, **settings}))
    try:
        yield fetcher
    finally:
        await fetcher.close()


async def wait_until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, as long as the time limit of the test allows."""
    while not condition():  # noqa: ASYNC110  the server has no event for each of these
        await asyncio.sleep(0.001)


def get(path: str, **more: Any) -> Play:
    """Return a scenario that fetches one path."""

    async def scenario(fetcher: CurlFetcher, server: Server) -> HttpResponse:
        fields = {key: more.pop(key) for key in ("accept", "max_body") if key in more}
        return await fetcher.fetch(Request(server.url(path), **more), **fields)

    return scenario
