"""A kill at any step of exporting and dropping a segment loses nothing: a repetition completes both."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lycosa.crawl.engine.retention import drop_expired
from lycosa.frontier.core.model import Selection, UrlRecord
from lycosa.frontier.core.segments import Retention
from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.redis.admin.operations import RedisOperations
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from tests.conftest import PROVE
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

PLAIN = Policy(robots=False, concurrency_per_host=1000)
PAGES = 12
KEPT = Retention(number=2)
KILLED, SURVIVED = 9, 0
STEPS_MAX = 200


def hour(number: int) -> str:
    return f"2026-11-21T{number:02}"


NOW = 1_795_300_000.0
"""A time after the hours of all segments."""


class Fuse:
    """Kills the process in which it runs, a child of the test, at a given step."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def step(self, *_: object) -> None:
        self.left -= 1
        if self.left < 0:
            os._exit(KILLED)

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function with a step before and after each call."""

        def called(*arguments: Any) -> Any:
            self.step()
            result = function(*arguments)
            self.step()
            return result

        return called


class Fused:
    """An object with a step before each call of its methods."""

    def __init__(self, target: Any, fuse: Fuse) -> None:
        self._target = target
        self._fuse = fuse

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._target, name)

        async def called(*arguments: Any) -> Any:
            self._fuse.step()
            return await method(*arguments)

        return called


async def crawl_hours(frontier: Any) -> None:
    for number in range(4):
        urls = [(f"http://h{page % 5}.example", page) for page in range(PAGES)]
        await frontier.push(
            [UrlRecord(1, page + 1, f"{host}/{page}", f"{host}:80", hour(number)) for host, page in urls]
        )
        while leases := await frontier.lease(100, NOW):
            for lease in leases:
                await frontier.ack(lease, "200", (), NOW)
        for _ in range(2):
            await frontier.commit({})
            await frontier.stats()


async def stored(operations: Any, segment: str) -> set[str]:
    found, cursor = set(), ""
    while cursor is not None:
        rows, cursor = await operations.rows(Selection(segment=segment), cursor, 100)
        found |= {row.record.url for row in rows}
    return found


def exported(folder: Path) -> set[str]:
    file = folder / f"{hour(0)}.jsonl"
    return {json.loads(line)["url"] for line in file.read_bytes().splitlines()} if file.exists() else set()


def dies(fuse: Fuse, work: Callable[[], Coroutine[Any, Any, None]]) -> bool:
    """Do this work in a child process. Return whether the fuse killed it."""
    child = os.fork()
    if not child:
        code = 1
        try:
            Path.replace = fuse.around(Path.replace)  # type: ignore[method-assign]
            asyncio.run(work())
            code = SURVIVED
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (KILLED, SURVIVED)
    return os.waitstatus_to_exitcode(status) == KILLED


async def check(operations: Any, folder: Path) -> None:
    """Check that nothing is lost after the kill; go on, and check that the rest is done."""
    assert len(await stored(operations, hour(0))) == PAGES or len(exported(folder)) == PAGES
    dropped = await drop_expired(operations, KEPT, NOW, folder)
    assert dropped in ([], [hour(0)])
    assert len(exported(folder)) == PAGES
    assert await stored(operations, hour(0)) == set()
    for number in (1, 2, 3):
        assert len(await stored(operations, hour(number))) == PAGES
    states = {view.name: str(view.state) for view in await operations.segments()}
    assert states[hour(0)] == "dropped"
    assert await operations.verify(lambda _: None) == []


def test_a_kill_between_export_and_deletion_loses_nothing(tmp_path: Path) -> None:
    async def prepare() -> None:
        frontier = embedded_frontier(tmp_path / "first", PLAIN, expected=1000)
        await crawl_hours(frontier)
        await frontier.close()

    asyncio.run(prepare())
    for steps in range(STEPS_MAX):
        state, folder, fuse = tmp_path / "state", tmp_path / "exported", Fuse(steps)
        shutil.rmtree(state, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "first", state)

        async def work(state: Path = state, folder: Path = folder, fuse: Fuse = fuse) -> None:
            frontier = embedded_frontier(state, PLAIN, expected=1000, on_step=fuse.step)
            await drop_expired(Fused(LocalOperations(frontier), fuse), KEPT, NOW, folder)  # type: ignore[arg-type]

        async def resume(state: Path = state, folder: Path = folder) -> None:
            frontier = embedded_frontier(state, PLAIN, expected=1000)
            await check(LocalOperations(frontier), folder)
            await frontier.close()

        killed = dies(fuse, work)
        asyncio.run(resume())
        if not killed:
            assert steps > 6
            return
    pytest.fail(f"more than {STEPS_MAX} steps")


async def joined(client: Any, crawl: str, worker: str) -> RedisFrontier:
    return await simulated_frontier(client, crawl, PLAIN, NOW, worker=worker, partitions=3, keep_done=True)


def test_a_kill_between_export_and_deletion_on_redis_loses_nothing(tmp_path: Path, redis: Any) -> None:
    """Nothing is lost even if the kill comes between the calls to two partitions."""
    for steps in range(0, STEPS_MAX, 1 if PROVE else 5):
        folder, fuse, crawl = tmp_path / f"exported-{steps}", Fuse(steps), token_hex(8)

        async def prepare(crawl: str = crawl) -> None:
            frontier = await joined(LooplessClient(redis.url), crawl, "first")
            await crawl_hours(frontier)
            await frontier.close()

        async def work(crawl: str = crawl, folder: Path = folder, fuse: Fuse = fuse) -> None:
            client = Fused(LooplessClient(redis.url), Fuse(STEPS_MAX))
            operations = RedisOperations((await joined(client, crawl, "second")).session)
            client._fuse = fuse
            await drop_expired(operations, KEPT, NOW, folder)

        async def resume(crawl: str = crawl, folder: Path = folder) -> None:
            frontier = await joined(LooplessClient(redis.url), crawl, "third")
            await frontier.begin_run(NOW)
            await check(RedisOperations(frontier.session), folder)
            assert not [key for key in _keys(redis.url, crawl) if hour(0) in key]
            await frontier.close()

        asyncio.run(prepare())
        killed = dies(fuse, work)
        asyncio.run(resume())
        if not killed:
            assert steps > 20
            return
    pytest.fail(f"more than {STEPS_MAX} steps")


def _keys(url: str, crawl: str) -> list[str]:
    """Return the keys of a crawl."""
    return [key.decode() for key in LooplessClient(url).blocking.scan_iter(f"lycosa:{{{crawl}.*", count=1000)]
