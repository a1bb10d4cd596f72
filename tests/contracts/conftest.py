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


@pytest.fixture(params=["memory", "embedded"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """A function that makes a new frontier of this back end."""
    made: list[Any] = []

    def open_(policy: Policy) -> Any:
        path = tmp_path / str(len(made))
        made.append(memory_frontier(policy) if request.param == "memory" else embedded_frontier(path, policy))
        return made[-1]

    yield open_
    for frontier in made:
        asyncio.run(frontier.close())


@pytest.fixture(params=[*LOOPS, "asyncio, each socket watched by the loop"])
def run(request, monkeypatch) -> Callable[..., Any]:
    """Run a play of a fetcher; see `runner_on`."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)
    return runner_on(name)
