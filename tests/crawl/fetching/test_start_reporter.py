"""Starts of requests are reported to a frontier that other workers share or another process owns (C3, C4)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from lycosa.core.errors import WorkerLost
from lycosa.crawl.fetching.start_reporter import OwnerReportingFetcher, StartReportingFetcher
from lycosa.http.core.request import Request
from tests.crawl.fetching.recording import SENT_AGO_S, RecordingFetcher, StartedHosts

PAGE, HOST = "http://a.example/page", "http://a.example:80"


def test_a_start_is_reported_before_the_transfer_and_corrected_after_it():
    async def main() -> None:
        frontier, times = StartedHosts(), iter((100.0, 107.0))
        fetcher = StartReportingFetcher(RecordingFetcher(), frontier, SimpleNamespace(now=times.__next__))
        await fetcher.fetch(Request(PAGE))
        assert frontier.starts == [(HOST, 100.0), (HOST, 107.0 - SENT_AGO_S)]

    asyncio.run(main())


def test_an_expelled_worker_starts_nothing():
    async def main() -> None:
        inner, frontier = RecordingFetcher(), StartedHosts(lost=WorkerLost("expelled"))
        with pytest.raises(WorkerLost):
            await StartReportingFetcher(inner, frontier, SimpleNamespace(now=lambda: 0.0)).fetch(Request(PAGE))
        assert (inner.calls, frontier.starts) == ([], [])

    asyncio.run(main())


def test_only_starts_of_hosts_with_a_delay_are_reported_to_the_owner():
    async def main() -> None:
        inner, frontier = RecordingFetcher(), StartedHosts(HOST)
        fetcher = OwnerReportingFetcher(inner, frontier)
        await fetcher.fetch(Request("http://b.example/"))
        assert frontier.starts == []
        await fetcher.fetch(Request(PAGE))
        assert frontier.starts == [(HOST,), (HOST, SENT_AGO_S, True)]
        assert [request.url for request, _ in inner.calls] == ["http://b.example/", PAGE]

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["shared", "owned"])
def test_a_transfer_that_fails_is_reported_once(kind):
    async def main() -> None:
        class Failing(RecordingFetcher):
            async def fetch(self, request, **options):
                raise OSError("broken")

        frontier = StartedHosts(HOST)
        if kind == "shared":
            fetcher = StartReportingFetcher(Failing(), frontier, SimpleNamespace(now=lambda: 100.0))
        else:
            fetcher = OwnerReportingFetcher(Failing(), frontier)
        with pytest.raises(OSError, match="broken"):
            await fetcher.fetch(Request(PAGE))
        assert [host for host, *_ in frontier.starts] == [HOST]

    asyncio.run(main())
