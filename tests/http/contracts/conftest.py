"""The event loops on which the contract tests of a fetcher run."""

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
    """Return what runs a test coroutine with a fetcher; see `runner_on`."""
    name, _, alone = request.param.partition(",")
    if alone:
        monkeypatch.setattr(sockets, "EpollSockets", sockets.LoopSockets)
    return runner_on(name)
