"""Which fetchers a crawl has, and in which order they are wrapped (C2, C3, P1)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import SimpleNamespace
from typing import Any

import pytest

from lycosa.app.crawl.fetchers import Fetchers, make_fetchers
from lycosa.app.crawl.frontier import OpenFrontier
from lycosa.config import Settings
from lycosa.core.errors import FetchError
from lycosa.crawl.events.signals import Signals
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.start_reporter import OwnerReportingFetcher
from lycosa.crawl.workers.remote import RemoteAddresses, RemoteFrontier
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from tests.crawl.fetching.recording import StartedHosts
from tests.storage.memory_keystore import MemoryKeyStore

OWN = OpenFrontier(object(), object()).report_starts(Clock())  # type: ignore[arg-type]
ALONE = ["SignallingFetcher", "ResolvedHostFetcher", "CurlFetcher"]


def build(stack: AsyncExitStack, report_starts: Any = lambda fetcher: fetcher, leaser: Any = None) -> Fetchers:
    crawler = SimpleNamespace(signals=Signals(), stats=StatsCollector())
    spec = SimpleNamespace(settings=Settings(), spider=None, target=SimpleNamespace(crawler=crawler))
    return make_fetchers(stack, spec, RemoteAddresses(), report_starts, leaser, MemoryKeyStore(), Clock())  # type: ignore[arg-type]


def shared() -> Any:
    return OpenFrontier(object(), object(), StartedHosts()).report_starts(Clock())  # type: ignore[arg-type]


def to_owner(fetcher: Any) -> Any:
    return OwnerReportingFetcher(fetcher, RemoteFrontier(None, RemoteAddresses()))  # type: ignore[arg-type]


def wrapper_names(fetcher: Any) -> list[str]:
    """Return the names of a fetcher and of those that it wraps."""
    names = []
    while fetcher is not None:
        names.append(type(fetcher).__name__)
        fetcher = getattr(fetcher, "_fetcher", None)
    return names


@pytest.mark.parametrize(
    ("report_starts", "leaser", "order"),
    [
        (lambda: OWN, None, ALONE),
        (lambda: OWN, object(), [ALONE[0], "PooledFetcher", *ALONE[1:]]),
        (shared, None, [ALONE[0], "StartReportingFetcher", *ALONE[1:]]),
        (shared, object(), [ALONE[0], "PooledFetcher", "StartReportingFetcher", *ALONE[1:]]),
        (lambda: to_owner, None, [ALONE[0], "OwnerReportingFetcher", *ALONE[1:]]),
        (lambda: to_owner, object(), [ALONE[0], "PooledFetcher", "OwnerReportingFetcher", *ALONE[1:]]),
    ],
    ids=["alone", "alone, pool", "shared", "shared, pool", "worker process", "worker process, pool"],
)
def test_each_kind_of_crawl_wraps_its_fetchers_in_a_fixed_order(report_starts, leaser, order):
    async def main() -> None:
        async with AsyncExitStack() as stack:
            fetchers = build(stack, report_starts(), leaser)
            assert wrapper_names(fetchers.pages) == order
            assert wrapper_names(fetchers.robots) == order[1:], "signals are for the pages of the spider only"
            assert fetchers.pooled is (fetchers.robots if leaser is not None else None)

    asyncio.run(main())


def test_closing_the_stack_closes_the_fetchers():
    async def main() -> None:
        async with AsyncExitStack() as stack:
            fetchers = build(stack)
        with pytest.raises(FetchError, match="the fetcher was closed"):
            await fetchers.pages.fetch(Request("http://127.0.0.1:1/"))

    asyncio.run(main())


def test_only_a_shared_frontier_takes_reports_of_starts():
    """If these methods were renamed, the reports would end silently."""
    for method in ("check_membership", "report_start"):
        assert hasattr(RedisFrontier, method)
        assert not hasattr(LocalFrontier, method)
