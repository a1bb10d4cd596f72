"""Fixtures that several contracts share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lycosa.core.frontier import Policy
from lycosa.fetchers import sockets
from lycosa.frontiers.embedded import embedded_frontier
from lycosa.frontiers.memory import memory_frontier
from tests.contracts.fetching import LOOPS, runner_on

Open = Callable[[Policy], Any]


@pytest.fixture(params=["memory", "embedded", "redis", "redis, 3 partitions"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A function that makes a new frontier of this back end."""
    made: list[Any] = []

    def open_(policy: Policy) -> Any:
        if request.param.startswith("redis"):
            from lycosa.frontiers.redis.joining import simulated_frontier
            made.append(at_once(simulated_frontier(Sync(), "test", policy, 0.0, partitions=3 if "3" in request.param else 1)))
            return made[-1]
        path = tmp_path / str(len(made))
        made.append(memory_frontier(policy) if request.param == "memory" else embedded_frontier(path, policy))
        return made[-1]

    yield open_
    for frontier in made:
        asyncio.run(frontier.close())


class Sync:
    """What the frontier needs of a client, over one that blocks: each test has a loop of its own."""

    def __init__(self):
        import redis
        self._real = redis.Redis(port=16999)
        self._real.flushall()

    async def execute_command(self, *arguments): return self._real.execute_command(*arguments)
    async def hget(self, *arguments): return self._real.hget(*arguments)
    async def hgetall(self, *arguments): return self._real.hgetall(*arguments)
    async def hscan_iter(self, *arguments):
        for each in self._real.hscan_iter(*arguments): yield each
    async def zscan_iter(self, *arguments):
        for each in self._real.zscan_iter(*arguments): yield each
    async def aclose(self): self._real.close()


@pytest.fixture(params=[*LOOPS, "asyncio, each socket watched by the loop"])
def run(request, monkeypatch) -> Callable[..., Any]:
    """Run a play of a fetcher; see `runner_on`."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)
    return runner_on(name)


def at_once(story):
    """Play what never waits, also within a loop."""
    try:
        story.send(None)
    except StopIteration as end:
        return end.value
