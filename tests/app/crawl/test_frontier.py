"""How a crawl uses its own frontier, and one that workers share."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.crawl.frontier import OpenFrontier, open_frontier
from lycosa.app.crawl.spec import crawl_spec
from lycosa.config import Settings
from lycosa.core.errors import StateError
from lycosa.crawl.events.reporting import WorkerReporter
from lycosa.crawl.events.stats import RunStats
from lycosa.crawl.events.stats_collector import StatsCollector
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.state_dir import StateDir
from lycosa.infra.clock import Clock
from tests.frontier.contracts.test_frontier import HOST, url


def reporter() -> WorkerReporter:
    return WorkerReporter(None, RunStats(0.0), StatsCollector(), 1)  # type: ignore[arg-type]


def test_an_own_frontier_shares_nothing_and_is_finished_when_it_is_empty() -> None:
    async def run_scenario() -> None:
        opened = OpenFrontier.own(memory_frontier(Policy()))
        assert opened.shared is None
        assert opened.cookies is None
        assert opened.shortage() == ""
        assert await opened.is_finished()
        opened.set_reporter(reporter())
        assert await opened.totals(reporter()) == {}
        fetcher: Any = object()
        assert opened.report_starts(Clock())(fetcher) is fetcher

    asyncio.run(run_scenario())


def test_only_an_own_frontier_has_delays_for_worker_processes() -> None:
    async def run_scenario() -> None:
        frontier = memory_frontier(Policy(delay_s=2.0))
        await frontier.push([url(1)])
        assert OpenFrontier.own(frontier).delays(HOST) == [(HOST, 2.0)]
        shared: Any = Shared()
        assert OpenFrontier.joined(shared).delays(HOST) == ()

    asyncio.run(run_scenario())


def test_operations_on_an_own_frontier_commit_and_wake_the_crawl() -> None:
    async def run_scenario() -> None:
        called = []

        async def commit() -> None:
            called.append("commit")

        opened = OpenFrontier.own(memory_frontier(Policy()))
        operations = opened.operations(commit, lambda: called.append("changed"), lambda: "the disk is full")
        assert (await operations.stats()).paused == "the disk is full"
        await operations.push([])
        await operations.commit()
        assert called == ["changed", "commit"]

    asyncio.run(run_scenario())


class Shared:
    """A stand-in for a shared frontier. It has only members that `SharedFrontier` adds to `Frontier`."""

    cookies: Any = object()
    shortage = "the server is full"
    finished, unreachable = False, False

    async def is_finished(self) -> bool:
        return self.finished

    def report_start(self, host: str, now: float) -> None: ...

    def set_reporter(self, report: Any, last: Any) -> None:
        self.reports = report, last

    async def totals(self, report: bytes) -> dict[str, int]:
        if self.unreachable:
            raise StateError("the server does not answer")
        return {"pages": 7}

    def operations(self, *arguments: Any) -> Any:
        return arguments


def test_a_shared_frontier_provides_cookies_shortage_and_reports() -> None:
    async def run_scenario() -> None:
        shared: Any = Shared()
        opened = OpenFrontier.joined(shared)
        assert opened.frontier is opened.shared is shared
        assert opened.cookies is shared.cookies
        assert opened.shortage() == "the server is full"
        shared.shortage = ""
        assert opened.shortage() == "", "read each time"
        assert not await opened.is_finished()
        shared.finished = True
        assert await opened.is_finished()
        opened.set_reporter(reporter())
        assert len(shared.reports) == 2
        assert await opened.totals(reporter()) == {"pages": 7}
        made: Any = opened.operations
        assert made(1, 2, 3) == (1, 2, 3)
        fetcher: Any = object()
        assert opened.report_starts(Clock())(fetcher) is not fetcher

    asyncio.run(run_scenario())


def test_totals_are_empty_if_the_server_does_not_answer() -> None:
    shared: Any = Shared()
    shared.unreachable = True
    assert asyncio.run(OpenFrontier.joined(shared).totals(reporter())) == {}


@pytest.mark.parametrize("expire_after", [None, 100.0])
def test_an_own_frontier_does_not_expire_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, expire_after: float | None
) -> None:
    async def run_scenario() -> None:
        spec = crawl_spec(Settings(expire_after=expire_after), ["http://127.0.0.1:9/"])
        async with AsyncExitStack() as stack:
            state = StateDir(tmp_path)
            stack.callback(state.close)
            await open_frontier(stack, spec, state)

    asyncio.run(run_scenario())
    lines = [record.getMessage() for record in caplog.records if "expire_after" in record.getMessage()]
    told = "expire_after has no effect without --frontier: only a crawl on Redis expires"
    assert lines == ([told] if expire_after else [])
