"""Scenarios run on uvloop, as the command does; those that depend on details of the loop also on asyncio's own."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.http.contracts.test_fetcher_tls import certificates  # noqa: F401
from tests.proxies.gateway.harness import run_scenario


@pytest.fixture
def run() -> Callable[..., Any]:
    return run_scenario


@pytest.fixture(params=["uvloop", "asyncio"])
def run_on_both_loops(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return partial(run_scenario, loop=request.param)
