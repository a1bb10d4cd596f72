"""Child processes of a site (D4) answer its requests. If one ends, hangs or is missing, no request is lost."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lycosa.core.errors import UsageError
from lycosa.infra.web import site_processes
from lycosa.infra.web.site_processes import AnswerInProcesses, SiteProcesses, warm_up

DEADLINE_S = 60.0
SIGNALS = {"/die": signal.SIGKILL, "/hang": signal.SIGSTOP}


@asynccontextmanager
async def open_site() -> AsyncIterator[Any]:
    """A site that shows its process, and has paths that end or stop it."""

    async def site(scope, receive, send):
        if scope["path"] in SIGNALS:
            os.kill(os.getpid(), SIGNALS[scope["path"]])
        status = 500 if scope["path"] == "/wrong" else 200
        await send(
            {"type": "http.response.start", "status": status, "headers": [(b"x-client", b"%d" % scope["client"][1])]}
        )
        for part in (str(os.getpid()), f" {scope['query_string'].decode()}"):
            await send({"type": "http.response.body", "body": part.encode(), "more_body": True})
        if status == 500:
            raise ValueError("wrong")

    yield site


@asynccontextmanager
async def open_no_site() -> AsyncIterator[Any]:
    raise UsageError("there is no site")
    yield


async def own_site(_scope, _receive, send):
    """The site in this process."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"own"})


class Client:
    """Sends requests to a site with child processes."""

    def __init__(self, processes: SiteProcesses) -> None:
        self._site = AnswerInProcesses(own_site, processes, lambda path: path != "/admin")

    async def get(self, path: str = "/", method: str = "GET") -> tuple[int, dict[bytes, bytes], str]:
        """Return status, headers and body."""
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        path, _, query = path.partition("?")
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": []}
        await self._site(scope | {"client": ("127.0.0.1", 4321), "app": self}, None, send)
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"].decode()

    async def body(self, path: str = "/") -> str:
        return (await self.get(path))[2]

    async def until(self, accepted: Callable[[str], bool]) -> str:
        """Request a page until its body is accepted."""
        async with asyncio.timeout(DEADLINE_S):
            while not accepted(body := await self.body()):  # noqa: ASYNC110 (another process)
                await asyncio.sleep(0.02)
        return body


def is_child(body: str) -> bool:
    return body != "own"


@asynccontextmanager
async def started(count: int, site: Any = open_site) -> AsyncIterator[Client]:
    processes = SiteProcesses(site, count)
    processes.start()
    try:
        yield Client(processes)
    finally:
        await processes.close()


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_requests_are_shared_among_the_processes_which_end_with_the_site() -> None:
    async def main() -> set[int]:
        async with started(2) as client:
            assert await client.body() == "own", "this process answers until the others are ready"
            pids: set[str] = set()
            async with asyncio.timeout(DEADLINE_S):
                while len(pids) < 2:
                    pids |= {body.split()[0] for body in await asyncio.gather(client.body(), client.body())} - {"own"}
            status, headers, body = await client.get("/search?q=a")
            assert (status, headers, body.split()[1]) == (200, {b"x-client": b"4321"}, "q=a")
            assert is_child((await client.get("/", "HEAD"))[2])
            assert (await client.get("/", "POST"))[2] == await client.body("/admin") == "own"
            failed = await client.get("/wrong")
            assert failed[0] == 500
            assert is_child(failed[2])
            assert all(is_alive(int(pid)) for pid in pids), "a request that fails ends no process"
            return {int(pid) for pid in pids}

    pids = asyncio.run(main())
    assert not any(map(is_alive, pids))
    assert str(os.getpid()) not in map(str, pids)


@pytest.mark.parametrize("path", ["/die", "/hang"])
def test_a_request_is_answered_although_its_process_dies_or_hangs(path, monkeypatch, caplog) -> None:
    async def main() -> None:
        async with started(1) as client:
            first = await client.until(is_child)
            monkeypatch.setattr(site_processes, "ANSWER_TIMEOUT_S", 0.5)
            assert await client.body(path) == "own"
            monkeypatch.setattr(site_processes, "ANSWER_TIMEOUT_S", DEADLINE_S)
            assert await client.until(lambda body: is_child(body) and body != first)
            assert not is_alive(int(first))

    monkeypatch.setattr(site_processes, "RESTART_DELAY_S", 0.0)
    monkeypatch.setattr(site_processes, "END_TIMEOUT_S", 0.1)
    asyncio.run(main())
    assert "a process of the site ended (exit code -9); restarting it" in caplog.text


def test_this_process_answers_if_the_others_cannot_open_the_site(caplog, capfd) -> None:
    async def main() -> None:
        async with started(1, open_no_site) as client, asyncio.timeout(DEADLINE_S):
            while "exit code 1" not in caplog.text:
                assert await client.body() == "own"
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert "there is no site\n" in capfd.readouterr().err


def test_a_process_that_cannot_be_started_is_reported(caplog) -> None:
    async def main() -> None:
        unpicklable = lambda: open_site()  # noqa: E731, PLW0108
        async with started(1, unpicklable) as client, asyncio.timeout(DEADLINE_S):
            while "a process of the site failed" not in caplog.text:
                assert await client.body() == "own"
                await asyncio.sleep(0.02)

    asyncio.run(main())
    assert "pickle" in caplog.text


def test_a_site_is_warmed_up_with_requests_like_those_of_visitors() -> None:
    asked: list[tuple[str, bytes]] = []

    async def site(scope: Any, _receive: Any, send: Any) -> None:
        asked.append((scope["path"], scope["query_string"]))
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(warm_up(site, ["/base/", "/base/search?q=a&sort=size"]))
    assert asked == [("/base/", b""), ("/base/search", b"q=a&sort=size")]
