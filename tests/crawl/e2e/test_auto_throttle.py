"""Auto-throttle as the server sees it (C2): it adapts the delay to a host, and loses no page.

Times are those of the server; see `test_polite.py` about `ARRIVAL_S`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

import lycosa
from lycosa import Request, Spider
from lycosa.crawl.events.stats import Summary
from tests.pace import assert_paced, gaps_of
from tests.servers.misbehaving import Server, serving

ARRIVAL_S, LATE_S = 0.03, 0.2
"""A busy machine may be late with any request. `ARRIVAL_S` is the tolerance for times that no late request shortens,
`LATE_S` is the tolerance for a single gap between two requests, which is shorter if the first of them is late.
"""

QUICK = {
    "robots": False,
    "retries": 10,
    "backoff_base": 0,
    "auto_throttle": True,
    "auto_throttle_start": 0.05,
    "auto_throttle_max_delay": 0.5,
}


def run(scenario: Callable[[Server], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), serving(**options) as server:
            await scenario(server)

    asyncio.run(main())


async def crawl(server: Server, *paths: str, meta: dict[str, Any] | None = None, **settings: Any) -> Summary:
    class RequestsPaths(Spider):
        name = "requests-paths"

        async def start(self):
            for path in paths:
                yield Request(server.url(path), meta=meta)

        def parse(self, response):
            pass

    async with lycosa.Crawl(RequestsPaths, **{**QUICK, **settings}) as crawl:
        return await crawl.run()


def gaps(server: Server) -> list[float]:
    return gaps_of(hit.at for hit in server.hits)


@pytest.mark.parametrize("target", [1, 3])
def test_a_host_gets_the_targeted_number_of_concurrent_requests(target):
    """The server slows down under load: with all requests at once it would take six to eight times as long."""

    async def scenario(server: Server) -> None:
        paths = [f"/congested/{number}?ms=15" for number in range(40 * target)]
        summary = await crawl(server, *paths, auto_throttle_target=target)
        assert summary.reasons == {"200": len(paths)}
        later = server.memory["busy"][len(paths) // 2 :]
        assert target * 0.6 < median(later) < target * 1.6

    run(scenario)


def test_a_fast_host_gets_a_short_delay():
    """The first response halves the start delay, which is long because a busy machine may be late with a request."""

    async def scenario(server: Server) -> None:
        summary = await crawl(server, *(f"/good?{number}" for number in range(100)), auto_throttle_start=0.5)
        assert summary.reasons == {"200": 100}
        assert gaps(server)[0] > 0.5 / 2 - LATE_S
        assert median(gaps(server)[-50:]) < 0.2

    run(scenario)


def test_an_overloaded_host_is_slowed_down_and_no_page_is_lost():
    async def scenario(server: Server) -> None:
        paths = [f"/overloaded/{number}?ms=40&most=2" for number in range(50)]
        summary = await crawl(server, *paths, auto_throttle_target=6)
        assert (summary.reasons, summary.dead) == ({"200": 50}, [])
        refused = summary.stats["downloader/response_status_count/429"]
        assert 0 < refused < 15

    run(scenario)


def test_retry_after_is_respected():
    async def scenario(server: Server) -> None:
        paths = [f"/good?{number}" for number in range(10)]
        summary = await crawl(server, *paths, "/429?after=1", *(f"/good?more{number}" for number in range(10)))
        assert summary.reasons == {"200": 21}
        first = server.paths().index("/429?after=1")
        after = gaps(server)[first:]
        again = server.paths().index("/429?after=1", first + 1)
        assert server.hits[again].at - server.hits[first].at > 1 - ARRIVAL_S
        assert max(after[:3]) > 1 - LATE_S
        # Afterwards the delay shrinks slowly. Before, it was at most that of the start.
        assert median(after[3:8]) > QUICK["auto_throttle_start"]

    run(scenario)


def test_responses_to_requests_with_dont_adjust_delay_do_not_change_the_delay():
    async def scenario(server: Server) -> None:
        paths = [f"/slow?ms=200&{number}" for number in range(12)]
        await crawl(server, *paths, meta={"autothrottle_dont_adjust_delay": True})
        assert 0.05 - ARRIVAL_S < median(gaps(server)) < 0.13  # otherwise 0.2

    run(scenario)


def test_the_configured_delay_is_the_minimum():
    async def scenario(server: Server) -> None:
        await crawl(server, *(f"/good?{number}" for number in range(10)), delay=0.15)
        assert_paced(gaps(server), 0.15)
        assert median(gaps(server)) < 0.15 * 1.5

    run(scenario)


def test_the_crawl_delay_of_robots_txt_is_the_minimum():
    async def scenario(server: Server) -> None:
        await crawl(server, *(f"/good?{number}" for number in range(10)), robots=True)
        assert server.paths()[0] == "/robots.txt"
        assert_paced(gaps(server), 0.15)
        assert median(gaps(server)) < 0.15 * 1.5

    run(scenario, robots="User-agent: *\nCrawl-delay: 0.15\n")


def test_the_delay_has_a_maximum():
    async def scenario(server: Server) -> None:
        await crawl(server, *(f"/slow?ms=300&{number}" for number in range(10)), auto_throttle_max_delay=0.1)
        assert median(gaps(server)[3:]) < 0.2  # otherwise 0.3

    run(scenario)


def test_auto_throttle_debug_logs_every_change_of_the_delay(caplog):
    caplog.set_level(logging.INFO, "lycosa")

    async def scenario(server: Server) -> None:
        await crawl(server, "/slow?ms=20", "/slow?ms=21")
        assert "delay now" not in caplog.text
        await crawl(server, "/slow?ms=20", "/slow?ms=21", auto_throttle_debug=True)
        changes = [line for line in caplog.messages if "delay now" in line]
        assert changes[0].startswith(f"{server.url('')}: 200 after ")

    run(scenario)
