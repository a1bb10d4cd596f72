"""Which fetchers a crawl has, and in which order they are wrapped (C2, C3, P1)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.app.crawl.fetchers import Fetchers, fetchers_of
from lycosa.config import Settings
from lycosa.core.errors import FetchError
from lycosa.crawl.events.signals import Signals
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.start_reporter import SharedStarts
from lycosa.crawl.workers.remote import FarAddresses, FarFrontier
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from lycosa.storage.keystore.memory import MemoryRecords
from tests.crawl.fetching.recording import StartedHosts

ALONE = ["SignallingFetcher", "ResolvedHostFetcher", "CurlFetcher"]


def built(stack: AsyncExitStack, frontier: Any, lender: Any = None) -> Fetchers:
    crawler = SimpleNamespace(signals=Signals(), stats=StatsCollector())
    member = SimpleNamespace(settings=Settings(), spider=None, target=SimpleNamespace(crawler=crawler))
    site = SimpleNamespace(clock=Clock(), lender=lender, keeping=SimpleNamespace(store=MemoryRecords()))
    return fetchers_of(stack, member, frontier, FarAddresses(), site)  # type: ignore[arg-type]


def inwards(fetcher: Any) -> list[str]:
    """Return the names of a fetcher and of those that it wraps."""
    names = []
    while fetcher is not None:
        names.append(type(fetcher).__name__)
        fetcher = getattr(fetcher, "_fetcher", None)
    return names


@pytest.mark.parametrize(
    ("frontier", "lender", "order"),
    [
        (object(), None, ALONE),
        (object(), object(), [ALONE[0], "PooledFetcher", *ALONE[1:]]),
        (StartedHosts(), None, [ALONE[0], "StartReportingFetcher", *ALONE[1:]]),
        (StartedHosts(), object(), [ALONE[0], "PooledFetcher", "StartReportingFetcher", *ALONE[1:]]),
        (FarFrontier(print, print), None, [ALONE[0], "OwnerReportingFetcher", *ALONE[1:]]),
        (FarFrontier(print, print), object(), [ALONE[0], "PooledFetcher", "OwnerReportingFetcher", *ALONE[1:]]),
    ],
    ids=["alone", "alone, pool", "shared", "shared, pool", "worker process", "worker process, pool"],
)
def test_the_order_of_the_wrappers(frontier, lender, order):
    async def main() -> None:
        async with AsyncExitStack() as stack:
            fetchers = built(stack, frontier, lender)
            assert inwards(fetchers.pages) == order
            assert inwards(fetchers.robots) == order[1:], "signals are for the pages of the spider only"
            assert fetchers.pooled is (fetchers.robots if lender is not None else None)

    asyncio.run(main())


def test_who_closes_the_stack_closes_the_fetchers():
    async def main() -> None:
        async with AsyncExitStack() as stack:
            fetchers = built(stack, object())
        with pytest.raises(FetchError, match="the fetcher was closed"):
            await fetchers.pages.fetch(Request("http://127.0.0.1:1/"))

    asyncio.run(main())


def test_a_frontier_that_workers_share_takes_reports_of_starts_and_an_embedded_one_does_not():
    """Told apart by their methods: a renamed one would end the reports without a word."""
    for method in ("lives", "started"):
        assert hasattr(RedisFrontier, method)
        assert not hasattr(LocalFrontier, method)
    assert issubclass(RedisFrontier, SharedStarts)
