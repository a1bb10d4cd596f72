"""The loops on which the contracts of a fetcher are played."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lycosa.http.curl import sockets
from tests.http.contracts.fetching import runner_on


@pytest.fixture(
    params=[
        "uvloop",
        pytest.param("asyncio", marks=pytest.mark.prove),  # otherwise with the other way to watch sockets only
        "asyncio, each socket watched by the loop",
    ]
)
def run(request, monkeypatch) -> Callable[..., Any]:
    """Run a play of a fetcher; see `runner_on`."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)
    return runner_on(name)
