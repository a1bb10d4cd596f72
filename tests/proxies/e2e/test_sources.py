"""Sources of proxies: files, servers, providers and Python. A failing one removes no proxy and delays no other."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.proxies.checks import open_refresher, project_sources
from lycosa.core.errors import BadSetting, StateError
from lycosa.http.curl.fetcher import CurlFetcher, FetchSettings
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.core.sources.sources import ProxySource, RefreshResult, sources_from
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyPool
from lycosa.proxies.sources import Refresher
from tests.servers.ports import closed_port

HANG = "hang"


class ListServer:
    """A web server with lists: `answers` by path are a body, a response, or HANG; `requests` are the heads received."""

    def __init__(self) -> None:
        self.answers: dict[str, str] = {}
        self.requests: list[str] = []
        self.url = ""

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        self.requests.append(head)
        answer = self.answers.get(head.split(" ")[1], "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")
        if answer == HANG:
            await reader.read()  # until the client disconnects
        else:
            response = answer if answer.startswith("HTTP/") else f"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{answer}"
            writer.write(response.encode())
        writer.close()


@asynccontextmanager
async def serve_lists() -> AsyncIterator[ListServer]:
    lists = ListServer()
    async with await asyncio.start_server(lists.connected, "127.0.0.1", 0) as server:
        lists.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield lists


class ManualClock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def open_refresher_for(pool: ProxyPool, sources: Sequence[ProxySource], **more: Any) -> AsyncIterator[Refresher]:
    fetcher = CurlFetcher(FetchSettings(timeout_s=20))
    try:
        async with asyncio.timeout(60):
            yield Refresher(pool, sources, fetcher, **more)
    finally:
        await fetcher.close()


def source(name: str = "mine", **keys: object) -> ProxySource:
    (parsed,) = sources_from([{"name": name, **keys}], {})
    return parsed


async def hosts(pool: ProxyPool) -> list[str]:
    return sorted(view.proxy.host for view in await pool.proxies())


async def dead(pool: ProxyPool) -> list[str]:
    return sorted(view.proxy.host for view in await pool.proxies() if view.state is ProxyState.DEAD)


Scenario = Callable[[LocalPool, ListServer], Awaitable[None]]


def run(scenario: Scenario) -> None:
    async def main() -> None:
        async with serve_lists() as lists:
            await scenario(LocalPool(), lists)

    asyncio.run(main())


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Write a module `my_proxies`."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(text: str) -> None:
        (tmp_path / "my_proxies.py").write_text(text)

    yield write
    sys.modules.pop("my_proxies", None)


def test_every_kind_of_source_fills_the_pool(tmp_path: Path, module: Callable[[str], None]) -> None:
    (tmp_path / "list.txt").write_text("10.0.0.1:80 country=de\n# comment\nnonsense\n")
    module("def proxies():\n    yield '10.0.0.4:80'\n    yield {'ip': '10.0.0.5', 'port': 80}\n")

    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers["/list"] = "10.0.0.2:80\n"
        lists.answers["/api?c=de"] = json.dumps({"data": [{"h": "10.0.0.3", "p": 80}]})
        lists.answers["/api?c=fr"] = json.dumps({"data": [{"h": "10.0.0.6", "p": 80}]})
        sources = [
            source("a", kind="file", path="list.txt"),
            source("b", kind="url", url=f"{lists.url}/list"),
            source("c", kind="api", url=f"{lists.url}/api?c={{country}}", variables={"country": ["de", "fr"]},
                   items="data", fields={"host": "h", "port": "p"}, headers={"X-Key": "secret"}),
            source("d", kind="python", iterator="my_proxies:proxies"),
            source("e", kind="template", address="http://u-{session}:p@10.0.0.7:80", sessions=2),
        ]  # fmt: skip
        async with open_refresher_for(pool, sources, folder=tmp_path) as refresher:
            reports = await refresher.refresh()
            assert [(each.source, each.listed, each.added, each.problem) for each in reports] == [
                ("a", 1, 1, ""), ("b", 1, 1, ""), ("c", 2, 2, ""), ("d", 2, 2, ""), ("e", 2, 2, ""),
            ]  # fmt: skip
            assert [str(each) for each in reports[0].faults] == ["line 3: 'nonsense' has no port: write host:port"]
            assert await hosts(pool) == [f"10.0.0.{number}" for number in (1, 2, 3, 4, 5, 6, 7, 7)]
            tags = {view.proxy.host: dict(view.proxy.tags) for view in await pool.proxies()}
            assert tags["10.0.0.1"] == {"country": "de", "source": "a"}
            assert tags["10.0.0.6"] == {"country": "fr", "source": "c"}
            assert sum("X-Key: secret" in each for each in lists.requests) == 2
            assert [each.added for each in await refresher.refresh()] == [0] * 5

    run(scenario)


def test_a_failing_source_removes_nothing() -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers["/list"] = "10.0.0.1:80\n10.0.0.2:80\n"
        clock = ManualClock()
        mine = source(kind="url", url=f"{lists.url}/list", keep=60)
        async with open_refresher_for(pool, [mine], now=clock) as refresher:
            await refresher.refresh()
            for answer, problem in (
                ("", "has no proxies"),
                ("<html>quota</html>", "is a page"),
                ("HTTP/1.1 503 Down\r\nContent-Length: 0\r\n\r\n", "answered 503"),
                ("HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n10.0.0.1:80\n", "connection lost"),
                ("nonsense", "has no proxies (line 1: "),
            ):
                lists.answers["/list"] = answer
                clock.now += 1e6
                (report,) = await refresher.refresh()
                assert problem in report.problem
                assert report.removed == 0
                assert await hosts(pool) == ["10.0.0.1", "10.0.0.2"]
            lists.answers["/list"] = "10.0.0.2:80\n"
            assert (await refresher.refresh())[0].removed == 0, "proxies are kept for `keep` seconds"
            clock.now += 60
            assert (await refresher.refresh())[0].removed == 1
            assert await hosts(pool) == ["10.0.0.2"]

    run(scenario)


def test_a_failing_part_of_a_source_removes_nothing() -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers |= {"/de": "10.0.0.1:80", "/fr": "10.0.0.2:80"}
        mine = source(kind="api", url=f"{lists.url}/{{country}}", variables={"country": ["de", "fr"]}, keep=0)
        async with open_refresher_for(pool, [mine]) as refresher:
            await refresher.refresh()
            lists.answers |= {"/de": "10.0.0.3:80", "/fr": "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"}
            (report,) = await refresher.refresh()
            assert (report.problem, report.added, report.removed) == ("fr: answered 500", 1, 0)
            assert await hosts(pool) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]

    run(scenario)


def test_manually_added_proxies_stay_and_those_of_an_earlier_run_expire() -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers["/list"] = "10.0.0.1:80\n10.0.0.2:80\n10.0.0.3:80"
        mine = source(kind="url", url=f"{lists.url}/list", keep=0)
        async with open_refresher_for(pool, [mine]) as refresher:
            await refresher.refresh()
            lists.answers["/list"] = "10.0.0.1:80\n10.0.0.2:80\n"
            await pool.add([parse_proxy("10.0.0.3:80"), parse_proxy("10.0.0.9:80")])
            assert (await refresher.refresh())[0].removed == 0
        lists.answers["/list"] = "10.0.0.2:80\n"
        async with open_refresher_for(pool, [mine]) as refresher:  # in the next process
            (report,) = await refresher.refresh()
            assert report.removed == 1
            assert await hosts(pool) == ["10.0.0.2", "10.0.0.3", "10.0.0.9"]

    run(scenario)


def test_after_a_restart_new_proxies_are_checked_before_use() -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers |= {"/de": "10.0.0.1:80\n10.0.0.2:80", "/fr": "10.0.0.3:80"}
        mine = source(kind="api", url=f"{lists.url}/{{country}}", variables={"country": ["de", "fr"]})
        async with open_refresher_for(pool, [mine], checks_first=True) as refresher:
            await refresher.refresh()
            assert await dead(pool) == [], "the first list is not checked before use"
            lists.answers["/de"] += "\n10.0.0.4:80"
            await refresher.refresh()
            assert await dead(pool) == [], "a new proxy is not checked before use"
        views = {view.proxy.host: view.proxy.key for view in await pool.proxies()}
        await pool.remove([views["10.0.0.2"], views["10.0.0.3"]])  # as `forget_dead` does
        lists.answers["/fr"] = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"
        async with open_refresher_for(pool, [mine], checks_first=True) as refresher:  # in the next process
            assert (await refresher.refresh())[0].added == 1
            assert await dead(pool) == ["10.0.0.2"]
            lists.answers["/fr"] = "10.0.0.3:80"
            assert (await refresher.refresh())[0].added == 1
            assert await dead(pool) == ["10.0.0.2", "10.0.0.3"], "10.0.0.3 is in the first complete list"
            lists.answers["/fr"] += "\n10.0.0.5:80"
            await refresher.refresh()
            assert await dead(pool) == ["10.0.0.2", "10.0.0.3"]

    run(scenario)


def test_after_a_restart_without_checks_new_proxies_are_used() -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers["/list"] = "10.0.0.1:80\n10.0.0.2:80"
        await pool.add([parse_proxy("10.0.0.1:80", tags={"source": "mine"})])
        async with open_refresher_for(pool, [source(kind="url", url=f"{lists.url}/list")]) as refresher:
            await refresher.refresh()
            assert await dead(pool) == []

    run(scenario)


def test_redirects_are_followed_without_secrets() -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        async with serve_lists() as other:
            other.answers["/new"] = "10.0.0.1:80"
            lists.answers["/old"] = f"HTTP/1.1 302 There\r\nLocation: {other.url}/new\r\nContent-Length: 0\r\n\r\n"
            lists.answers["/loop"] = "HTTP/1.1 302 There\r\nLocation: /loop\r\nContent-Length: 0\r\n\r\n"
            key = {"headers": {"Authorization": "secret"}}
            moved = source("moved", kind="url", url=f"{lists.url}/old", **key)
            loop = source("loop", kind="url", url=f"{lists.url}/loop", **key)
            async with open_refresher_for(pool, [moved, loop]) as refresher:
                reports = await refresher.refresh()
            assert [each.problem for each in reports] == ["", "more than 5 redirects"]
            assert "Authorization: secret" in lists.requests[0]
            assert "Authorization" not in other.requests[0]

    run(scenario)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def proxies():\n    raise ValueError('no quota')", "my_proxies:proxies failed: ValueError: no quota"),
        ("def proxies():\n    yield '10.0.0.1:80'\n    1 / 0", "failed: ZeroDivisionError"),
        ("def proxies():\n    return 'text'", "returned a str: return an iterator of addresses"),
        ("def proxies():\n    raise SystemExit(3)", "failed: SystemExit: 3"),
        ("def other(): pass", "failed: AttributeError"),
        ("import no_such_module", "failed: ModuleNotFoundError"),
        ("def proxies():\n    yield 7", "has no proxies (line 1: neither an address nor an object)"),
        ("def proxies(", "failed: SyntaxError"),
        (
            "from lycosa.core.errors import FetchTimeout\ndef proxies():\n    raise FetchTimeout('slow')",
            "FetchTimeout: slow",
        ),
        ("import asyncio\ndef proxies():\n    raise asyncio.CancelledError", "failed: CancelledError"),
        ("import asyncio\nasync def proxies():\n    raise asyncio.CancelledError", "failed: CancelledError"),
        ("from concurrent.futures import CancelledError\ndef proxies():\n    raise CancelledError", "CancelledError"),
        (
            "def proxies():\n    raise OSError('https://ann:geheim@api.example/list?key=geheim&a=b: no')",
            "failed: OSError: https://api.example/list?… no",
        ),
        ("def proxies():\n    raise OSError('one\\ntwo')", "failed: OSError: one two"),
        ("def proxies():\n    raise OSError('no url: /list?key=geheim (7)')", "failed: OSError: no url: /list?… (7)"),
    ],
)
def test_an_error_of_user_code_is_one_line(module: Callable[[str], None], text: str, problem: str) -> None:
    module(text)

    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        async with open_refresher_for(pool, [source(kind="python", iterator="my_proxies:proxies")]) as refresher:
            (report,) = await refresher.refresh()
            assert problem in report.problem
            assert "\n" not in report.problem
            assert "geheim" not in report.problem

    run(scenario)


@pytest.mark.parametrize(
    "text",
    [
        "async def proxies():\n    yield '10.0.0.1:80'",
        "async def proxies():\n    return ['10.0.0.1:80']",
        "from lycosa.proxies.core.proxy import parse_proxy\ndef proxies():\n    return [parse_proxy('10.0.0.1:80')]",
    ],
)
def test_user_code_may_be_asynchronous(module: Callable[[str], None], text: str) -> None:
    module(text)

    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        async with open_refresher_for(pool, [source(kind="python", iterator="my_proxies:proxies")]) as refresher:
            await refresher.refresh()
            assert await hosts(pool) == ["10.0.0.1"]

    run(scenario)


def test_a_hanging_source_delays_no_other(module: Callable[[str], None], tmp_path: Path) -> None:
    gate = threading.Event()
    sys.gate_of_the_test = gate  # type: ignore[attr-defined]
    module("import sys\ndef proxies():\n    sys.gate_of_the_test.wait()\n    yield '10.0.0.1:80'")
    os.mkfifo(tmp_path / "pipe")

    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers |= {"/hang": HANG, "/list": "10.0.0.2:80"}
        sources = [
            source("stuck", kind="python", iterator="my_proxies:proxies"),
            source("slow", kind="url", url=f"{lists.url}/hang"),
            source("pipe", kind="file", path="pipe"),
            source("good", kind="url", url=f"{lists.url}/list"),
        ]
        async with open_refresher_for(pool, sources, folder=tmp_path, read_max_s=2.0) as refresher:
            reports = {each.source: each.problem for each in await refresher.refresh()}
            timeout = "took more than 2 s"
            assert reports == {"stuck": timeout, "slow": timeout, "pipe": "is not a file", "good": ""}
            lists.answers["/hang"] = "10.0.0.3:80"
            second = {each.source: each.problem for each in await refresher.refresh()}
            assert (second["stuck"], second["slow"]) == ("the previous read has not ended yet", "")

    try:
        run(scenario)
    finally:
        gate.set()
        del sys.gate_of_the_test  # type: ignore[attr-defined]


class Results:
    """Collects the results of a running refresher. `next` waits for one."""

    def __init__(self) -> None:
        self._reports: defaultdict[str, asyncio.Queue[RefreshResult]] = defaultdict(asyncio.Queue)

    def take(self, report: RefreshResult) -> None:
        self._reports[report.source].put_nowait(report)

    async def next(self, name: str, *, success: bool) -> RefreshResult:
        while True:
            report = await self._reports[name].get()
            if bool(report.problem) is not success:
                return report


def test_a_pool_is_refreshed_and_failing_sources_are_read_less_often(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(pool: LocalPool, lists: ListServer) -> None:
        lists.answers["/list"] = "10.0.0.1:80"
        sources = [
            source("good", kind="url", url=f"{lists.url}/list?key=secret", every=1, keep=0),
            source("dead", kind="url", url=f"http://127.0.0.1:{closed_port()}/list?key=secret", every=1),
        ]
        lists.answers["/list?key=secret"] = "10.0.0.1:80"
        await pool.add([parse_proxy("10.0.0.8:80", tags={"source": "good"})])  # from an earlier run
        results = Results()
        async with (
            open_refresher_for(pool, sources, on_refresh=results.take) as refresher,
            asyncio.TaskGroup() as group,
        ):
            running = group.create_task(refresher.run())
            assert (await results.next("good", success=True)).removed == 1
            await results.next("dead", success=False)
            assert await hosts(pool) == ["10.0.0.1"]
            lists.answers["/list?key=secret"] = "10.0.0.2:80"
            assert (await results.next("good", success=True)).removed == 1
            assert await hosts(pool) == ["10.0.0.2"]
            running.cancel()
        assert caplog.text.count("source dead: connection refused") == 1
        assert "secret" not in caplog.text

    run(scenario)


def test_an_unreachable_pool_is_retried() -> None:
    class UnreachablePool(LocalPool):
        """A pool whose server cannot be reached at first."""

        failures = 1

        async def add(self, proxies: Any) -> int:
            if self.failures:
                self.failures -= 1
                raise StateError("the server is down")
            return await super().add(proxies)

    async def main() -> None:
        pool, results = UnreachablePool(), Results()
        async with serve_lists() as lists:
            lists.answers["/list"] = "10.0.0.1:80"
            mine = source(kind="url", url=f"{lists.url}/list")
            more = {"on_refresh": results.take, "retry_s": 0.1}
            async with open_refresher_for(pool, [mine], **more) as refresher, asyncio.TaskGroup() as group:
                running = group.create_task(refresher.run())
                assert (await results.next("mine", success=False)).problem == "the server is down"
                await results.next("mine", success=True)
                assert await hosts(pool) == ["10.0.0.1"]
                running.cancel()

    asyncio.run(main())


def test_sources_are_read_from_the_project_file_in_a_parent_folder(tmp_path: Path) -> None:
    (tmp_path / "lycosa.toml").write_text(
        '[[proxies.sources]]\nname = "mine"\nkind = "file"\npath = "list.txt"\n[proxies.default]\nlease_s = 5\n'
    )
    (tmp_path / "list.txt").write_text("10.0.0.1:80")
    inside = tmp_path / "inside"
    inside.mkdir()

    async def main() -> None:
        pool = LocalPool()
        async with open_refresher(pool, project_sources(inside), inside) as refresher:
            (report,) = await refresher.refresh()
            assert (report.added, report.problem) == (1, "")

    asyncio.run(main())
    (tmp_path / "lycosa.toml").write_text('[[proxies.sources]]\nname = "mine"\nkind = "ftp"\n')
    with pytest.raises(BadSetting, match=r"^lycosa.toml: proxies.sources\[1\].kind: this is not one of"):
        project_sources(tmp_path)
