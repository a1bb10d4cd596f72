"""The socket of the process that owns the state (F7): calls do not block its crawl, and clients report its failures.

Behaviour common to all such sockets (hostile clients, misbehaving owners, bounds) is tested in
`tests/infra/test_rpc.py`, that of the operations in `tests/frontier/contracts/test_operations.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from lycosa.core.errors import StateError, StateLocked, StorageError, UsageError
from lycosa.frontier import remote, server
from lycosa.frontier.core.model import Extras, Selection
from lycosa.frontier.core.states import Policy
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.server import LIMITS, SLICE_ROWS, serve
from tests.frontier.contracts.test_operations import url


def run(scenario: Awaitable[None]) -> None:
    """Run a scenario on the loop that crawls use."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await scenario

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def operations(commit: Any = None) -> Any:
    return LocalOperations(memory_frontier(Policy(robots=False)), commit=commit)


def test_one_call_touches_a_bounded_number_of_rows(tmp_path: Path) -> None:
    async def story() -> None:
        async with serve(tmp_path / "socket", operations()), remote.connect(tmp_path / "socket") as client:
            await client.push([url(number) for number in range(4 * SLICE_ROWS)])
            for limit in (10**9, 0, -5):
                rows, cursor = await client.rows(Selection(), "", limit)
                assert 1 <= len(rows) <= SLICE_ROWS
                assert cursor is not None
            with pytest.raises(UsageError, match="push at most 250"):
                await client._push([url(number) for number in range(SLICE_ROWS + 1)])

    run(story())


def test_too_long_results_are_returned_in_shorter_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        path = tmp_path / "socket"
        big = [url(number, extras=Extras("POST", {}, b"x" * 3000)) for number in range(40)]
        monkeypatch.setattr(server, "LIMITS", LIMITS._replace(frame_max=20_000))
        owned = operations()
        await owned.push(big)
        async with serve(path, owned), remote.connect(path) as client:
            found: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                rows, cursor = await client.rows(Selection(), cursor, 1000)
                assert len(rows) < 7
                found += [row.record.url for row in rows]
            assert found == [each.url for each in big]
            await owned.push([url(100, extras=Extras("POST", {}, b"x" * 20_000))])
            with pytest.raises(StorageError, match="one answer has 20,"):
                await client.find(url(100).fingerprint)

    run(scenario())


def test_a_client_pauses_between_calls_for_as_long_as_the_last_one_took(tmp_path: Path) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        commits: list[tuple[float, float]] = []

        async def commit() -> None:
            started = loop.time()
            await asyncio.sleep(0.05)
            commits.append((started, loop.time()))

        path = tmp_path / "socket"
        async with serve(path, operations(commit)), remote.connect(path) as first, remote.connect(path) as second:
            for _ in range(2):
                await first.commit()
            pausing = asyncio.ensure_future(first.stats())
            await second.stats()
            assert not pausing.done(), "another client does not wait"
            await pausing
        (started, ended), (next_started, _) = commits
        assert next_started - ended >= ended - started - 0.005

    run(scenario())


def test_a_client_is_refused_if_all_others_are_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIMITS", LIMITS._replace(clients_max=1))

    async def scenario() -> None:
        path, started, proceed = tmp_path / "socket", asyncio.Event(), asyncio.Event()

        async def commit() -> None:
            started.set()
            await proceed.wait()

        async with serve(path, operations(commit)), remote.connect(path) as busy:
            committing = asyncio.ensure_future(busy.commit())
            await started.wait()
            with pytest.raises(StateLocked, match="1 other processes are connected to the crawl: try again later"):
                async with remote.connect(path):
                    pass
            proceed.set()
            await committing

    run(scenario())


def test_the_client_that_is_idle_longest_is_disconnected_for_a_new_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "socket"
        async with serve(path, operations()), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(remote.connect(path)) for _ in range(LIMITS.clients_max)]
            for client in clients[:-1]:
                await client.stats()
            more = await stack.enter_async_context(remote.connect(path))
            await more.stats()
            with pytest.raises(StateError, match="the crawl has just ended; run the command again"):
                await clients[-1].stats()

    run(scenario())


def test_a_call_that_has_started_is_not_cancelled(tmp_path: Path) -> None:
    """It may be in the middle of a change."""

    async def scenario() -> None:
        path, started, proceed, ended = tmp_path / "socket", asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def commit() -> None:
            started.set()
            await proceed.wait()
            ended.set()

        async with serve(path, operations(commit)):
            async with remote.connect(path) as client:
                committing = asyncio.ensure_future(client.commit())
                await started.wait()
                committing.cancel()
                await asyncio.wait([committing])
            await asyncio.sleep(0.01)
            proceed.set()
        assert ended.is_set()

    run(scenario())


def test_a_client_reports_that_the_crawl_has_ended(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "socket"
        async with AsyncExitStack() as clients:
            async with serve(path, operations()):
                client = await clients.enter_async_context(remote.connect(path))
                assert client.pid == os.getpid()
                await client.stats()
            assert not path.exists()
            with pytest.raises(StateError, match="the crawl has just ended; run the command again"):
                await client.stats()

    run(scenario())


def test_an_unresponsive_owner_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REPORT_AFTER_S", 0.05)
    (tmp_path / "lock").write_text("4712")
    path, reports = tmp_path / "socket", list[str]()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_unix_server(never_answer, str(path)), remote.connect(path, 0.3, reports.append):
            pass

    with pytest.raises(StateLocked, match=r"process 4712 has not answered for 0\.3 s: .*; kill -CONT 4712 resumes"):
        run(scenario())
    assert reports == [f"{path}: process 4712 has not answered for 0.05 s: waiting up to 0.3 s"]


@pytest.mark.parametrize(("method", "verb"), [("verify", "checks"), ("compact", "compacts")])
def test_an_owner_that_is_working_is_not_reported_as_unresponsive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, verb: str
) -> None:
    path, proceed, reports = tmp_path / "socket", asyncio.Event(), list[str]()

    def report(line: str) -> None:
        reports.append(line)
        proceed.set()

    async def scenario() -> None:
        async with serve(path, operations(proceed.wait)), remote.connect(path, report=report) as client:
            # Set only after the connection is made: on a busy machine, connecting may take that long.
            monkeypatch.setattr(remote, "REPORT_AFTER_S", 0.02)
            await (client.verify(reports.append) if method == "verify" else client.compact())

    run(scenario())
    assert reports == [f"{path}: process {os.getpid()} {verb} the whole state; the crawl is paused meanwhile"]


def test_an_owner_that_answers_is_not_reported(tmp_path: Path) -> None:
    reports: list[str] = []

    async def scenario() -> None:
        path = tmp_path / "socket"
        async with serve(path, operations()), remote.connect(path, report=reports.append) as client:
            for _ in range(3):
                await client.stats()

    run(scenario())
    assert reports == []


def test_without_a_socket_the_crawl_continues(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        (tmp_path / "socket").mkdir()
        async with serve(tmp_path / "socket", operations()):
            await asyncio.sleep(0)

    run(scenario())
    assert "no socket for `lycosa frontier`" in caplog.text
