"""The socket of a live owner (F7): a call does not hold up the crawl, and a client reads what is wrong with its owner.

What is true of every such socket (hostile clients, strange owners, bounds) is tested in `tests/infra/test_rpc.py`, what
the operations do in `tests/frontier/contracts/test_operations.py`.
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


def run(story: Awaitable[None]) -> None:
    """Run a story on the loop that crawls run on."""

    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


def operations(commit: Any = None) -> Any:
    return LocalOperations(memory_frontier(Policy(robots=False)), commit=commit)


def test_one_call_touches_a_bounded_number_of_rows(tmp_path: Path) -> None:
    async def story() -> None:
        async with serve(tmp_path / "socket", operations()), remote.connect(tmp_path / "socket") as client:
            await client.push([url(number) for number in range(4 * SLICE_ROWS)])
            for limit in (10**9, 0, -5):
                rows, after = await client.rows(Selection(), "", limit)
                assert 1 <= len(rows) <= SLICE_ROWS
                assert after is not None
            with pytest.raises(UsageError, match="push at most 250"):
                await client._push([url(number) for number in range(SLICE_ROWS + 1)])

    run(story())


def test_results_that_are_too_long_come_in_shorter_slices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        big = [url(number, extras=Extras("POST", {}, b"x" * 3000)) for number in range(40)]
        monkeypatch.setattr(server, "LIMITS", LIMITS._replace(frame_max=20_000))
        owned = operations()
        await owned.push(big)
        async with serve(path, owned), remote.connect(path) as client:
            found: list[str] = []
            after: str | None = ""
            while after is not None:
                rows, after = await client.rows(Selection(), after, 1000)
                assert len(rows) < 7
                found += [row.record.url for row in rows]
            assert found == [each.url for each in big]
            await owned.push([url(100, extras=Extras("POST", {}, b"x" * 20_000))])
            with pytest.raises(StorageError, match="one answer has 20,"):
                await client.find(url(100).fingerprint)

    run(story())


def test_a_client_waits_for_as_long_as_its_last_call_took(tmp_path: Path) -> None:
    async def story() -> None:
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
            before = loop.time()
            await second.stats()
            assert loop.time() - before < 0.04, "another client does not wait"
        (started, ended), (next_started, _) = commits
        assert next_started - ended >= ended - started - 0.005

    run(story())


def test_a_client_that_finds_only_busy_ones_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "LIMITS", LIMITS._replace(clients_max=1))

    async def story() -> None:
        path, begun, go_on = tmp_path / "socket", asyncio.Event(), asyncio.Event()

        async def commit() -> None:
            begun.set()
            await go_on.wait()

        async with serve(path, operations(commit)), remote.connect(path) as busy:
            committing = asyncio.ensure_future(busy.commit())
            await begun.wait()
            with pytest.raises(StateLocked, match="1 other processes are connected to the crawl: try again later"):
                async with remote.connect(path):
                    pass
            go_on.set()
            await committing

    run(story())


def test_the_client_that_is_silent_for_longest_makes_room(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with serve(path, operations()), AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(remote.connect(path)) for _ in range(LIMITS.clients_max)]
            for client in clients[:-1]:
                await client.stats()
            more = await stack.enter_async_context(remote.connect(path))
            await more.stats()
            with pytest.raises(StateError, match="the crawl has just ended; run the command again"):
                await clients[-1].stats()

    run(story())


def test_a_call_that_has_begun_is_not_interrupted(tmp_path: Path) -> None:
    """It may be in the middle of a change."""

    async def story() -> None:
        path, begun, go_on, ended = tmp_path / "socket", asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def commit() -> None:
            begun.set()
            await go_on.wait()
            ended.set()

        async with serve(path, operations(commit)):
            async with remote.connect(path) as client:
                committing = asyncio.ensure_future(client.commit())
                await begun.wait()
                committing.cancel()
                await asyncio.wait([committing])
            await asyncio.sleep(0.01)
            go_on.set()
        assert ended.is_set()

    run(story())


def test_a_client_reads_that_the_crawl_has_ended(tmp_path: Path) -> None:
    async def story() -> None:
        path = tmp_path / "socket"
        async with AsyncExitStack() as clients:
            async with serve(path, operations()):
                client = await clients.enter_async_context(remote.connect(path))
                assert client.pid == os.getpid()
                await client.stats()
            assert not path.exists()
            with pytest.raises(StateError, match="the crawl has just ended; run the command again"):
                await client.stats()

    run(story())


def test_an_owner_that_is_silent_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "REPORT_AFTER_S", 0.05)
    (tmp_path / "lock").write_text("4712")
    path, reports = tmp_path / "socket", list[str]()

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    async def story() -> None:
        async with await asyncio.start_unix_server(attend, str(path)), remote.connect(path, 0.3, reports.append):
            pass

    with pytest.raises(StateLocked, match=r"process 4712 has not answered for 0\.3 s: .*; kill -CONT 4712 lets"):
        run(story())
    assert reports == [f"{path}: process 4712 has not answered for 0.05 s: it is waited for, 0.3 s at most"]


@pytest.mark.parametrize(("method", "does"), [("verify", "checks"), ("compact", "compacts")])
def test_an_owner_that_is_at_work_is_not_called_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, does: str
) -> None:
    monkeypatch.setattr(remote, "REPORT_AFTER_S", 0.02)
    path, go_on, reports = tmp_path / "socket", asyncio.Event(), list[str]()

    def report(line: str) -> None:
        reports.append(line)
        go_on.set()

    async def story() -> None:
        async with serve(path, operations(go_on.wait)), remote.connect(path, report=report) as client:
            await (client.verify(reports.append) if method == "verify" else client.compact())

    run(story())
    assert reports == [f"{path}: process {os.getpid()} {does} all that is stored, and its crawl stands still meanwhile"]


def test_an_owner_that_answers_is_not_reported(tmp_path: Path) -> None:
    reports: list[str] = []

    async def story() -> None:
        path = tmp_path / "socket"
        async with serve(path, operations()), remote.connect(path, report=reports.append) as client:
            for _ in range(3):
                await client.stats()

    run(story())
    assert reports == []


def test_without_a_socket_the_crawl_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        (tmp_path / "socket").mkdir()
        async with serve(tmp_path / "socket", operations()):
            await asyncio.sleep(0)

    run(story())
    assert "no socket for `lycosa frontier`" in caplog.text
