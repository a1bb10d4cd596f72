"""Fixtures that several contracts share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lycosa.fetchers import sockets
from tests.contracts.fetching import LOOPS, runner_on


@pytest.fixture(params=[*LOOPS, "asyncio, each socket watched by the loop"])
def run(request, monkeypatch) -> Callable[..., Any]:
    """Run a play of a fetcher; see `runner_on`."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)
    return runner_on(name)
