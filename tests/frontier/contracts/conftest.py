"""A new frontier of each back end, for the contract tests of the frontier."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from lycosa.frontier.core.states import Policy
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.memory import memory_frontier
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.simulated import simulated_frontier

Open = Callable[[Policy], Any]
PARTITIONS = {"redis": 1, "redis, 3 partitions": 3, "valkey": 1}
LOCAL = ["memory", "embedded"]


def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Yield a function that creates a new frontier of this back end."""
    frontiers: list[Any] = []
    partitions = PARTITIONS.get(request.param)
    url = request.getfixturevalue(request.param.partition(",")[0]).url if partitions else ""

    def open_(policy: Policy) -> Any:
        if request.param == "memory":
            frontiers.append(memory_frontier(policy))
        elif partitions is None:
            frontiers.append(embedded_frontier(tmp_path / str(len(frontiers)), policy))
        else:
            client, name = LooplessClient(url), token_hex(8)
            frontiers.append(run_without_waiting(simulated_frontier(client, name, policy, 0.0, partitions=partitions)))
        return frontiers[-1]

    yield open_
    for frontier in frontiers:
        asyncio.run(frontier.close())


@pytest.fixture(params=[*LOCAL, *PARTITIONS])
def new_frontier(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A function that creates a new frontier, for each back end."""
    yield from opener(request, tmp_path)


@pytest.fixture(params=[*LOCAL, "redis"])
def new_unpartitioned(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Like `new_frontier`, for back ends that see all hosts: limits per IP address need that."""
    yield from opener(request, tmp_path)


@pytest.fixture(params=LOCAL)
def new_local(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Like `new_frontier`, for back ends in this process."""
    yield from opener(request, tmp_path)


def run_without_waiting(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never waits. Works within a running loop, too."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the coroutine waits")
