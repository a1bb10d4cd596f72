"""The event loops on which the contract tests of a fetcher run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lycosa.http.curl import sockets
from tests.http.contracts.fetching import runner_for


@pytest.fixture(
    params=[
        "uvloop",
        pytest.param("asyncio", marks=pytest.mark.prove),  # differs from the next one only in how sockets are watched
        "asyncio, each socket watched by the loop",
    ]
)
def run(request, monkeypatch) -> Callable[..., Any]:
    """Return a function that runs a scenario with a fetcher; see `runner_for`."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)
    return runner_for(name)
