"""Plays run on uvloop, which is what the command uses; what a loop may do in its own way, on asyncio's own, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.http.contracts.test_fetcher_tls import certificates  # noqa: F401
from tests.proxies.gateway.playing import played as run


@pytest.fixture
def played() -> Callable[..., Any]:
    return run


@pytest.fixture(params=["uvloop", "asyncio"])
def played_on_both(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return partial(run, loop=request.param)
