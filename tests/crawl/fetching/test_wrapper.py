"""The wrappers of a fetcher (C2): each is a fetcher, passes every option on, and closes the fetcher that it wraps."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lycosa.core.errors import ConnectFailed
from lycosa.crawl.events.signals import Signals
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.crawl.fetching.addresses import ResolvedHostFetcher
from lycosa.crawl.fetching.proxying.pooled_fetcher import PooledFetcher
from lycosa.crawl.fetching.signalling import SignallingFetcher
from lycosa.crawl.fetching.start_reporter import OwnerReportingFetcher, StartReportingFetcher
from lycosa.crawl.workers.remote import RemoteAddresses
from lycosa.http.core.request import Request
from lycosa.infra.clock import Clock
from tests.crawl.fetching.recording import RecordingFetcher, StartedHosts

PAGE = "http://a.example/page"
PROXY = "http://127.0.0.1:8080"
OPTIONS: dict[str, Any] = {
    "accept": lambda *_: True,
    "max_body": 10,
    "cut": True,
    "address": "127.0.0.9",
    "public_only": True,
    "into": [].append,
    "proxy": PROXY,
}

WRAPPERS = {
    ResolvedHostFetcher: lambda inner: ResolvedHostFetcher(inner, RemoteAddresses()),
    StartReportingFetcher: lambda inner: StartReportingFetcher(inner, StartedHosts(), Clock()),
    OwnerReportingFetcher: lambda inner: OwnerReportingFetcher(inner, StartedHosts()),
    PooledFetcher: lambda inner: PooledFetcher(inner, None, None, StatsCollector(), Clock()),
    SignallingFetcher: lambda inner: SignallingFetcher(inner, Signals(), StatsCollector(), None),
}


@pytest.mark.parametrize("kind", WRAPPERS, ids=lambda kind: kind.__name__)
def test_a_wrapper_passes_on_every_option_and_does_not_change_the_request(kind):
    async def main() -> None:
        inner, request = RecordingFetcher(), Request(PAGE, meta={"proxy": "http://other.example"})
        response = await WRAPPERS[kind](inner).fetch(request, **OPTIONS)
        assert response.url == PAGE
        assert inner.calls == [(request, OPTIONS)]
        assert inner.calls[0][0] is request
        assert request.meta == {"proxy": "http://other.example"}

    asyncio.run(main())


@pytest.mark.parametrize("kind", WRAPPERS, ids=lambda kind: kind.__name__)
def test_closing_a_wrapper_closes_the_wrapped_fetcher(kind):
    async def main() -> None:
        inner = RecordingFetcher()
        await WRAPPERS[kind](inner).close()
        assert inner.closed == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("meta", "options", "is_fetched"),
    [
        ({}, {}, False),
        ({}, {"proxy": ""}, False),
        ({"proxy": ""}, {}, False),
        ({"proxy": PROXY}, {"proxy": ""}, False),
        ({"proxy": PROXY}, {}, True),
        ({}, {"proxy": PROXY}, True),
        ({"proxy": ""}, {"proxy": PROXY}, True),
        ({}, {"address": "127.0.0.9"}, True),
    ],
)
def test_a_host_without_an_address_is_reached_through_a_proxy_only(meta, options, is_fetched):
    async def main() -> None:
        inner, addresses = RecordingFetcher(), RemoteAddresses()
        addresses.set_error("http://a.example:80", "host not found")
        fetcher = ResolvedHostFetcher(inner, addresses)
        if is_fetched:
            await fetcher.fetch(Request(PAGE, meta=meta), **options)
        else:
            with pytest.raises(ConnectFailed, match="host not found"):
                await fetcher.fetch(Request(PAGE, meta=meta), **options)
        await fetcher.fetch(Request("http://b.example/", meta=meta), **options)
        assert [request.url for request, _ in inner.calls] == [PAGE] * is_fetched + ["http://b.example/"]

    asyncio.run(main())
