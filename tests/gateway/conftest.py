"""Every play runs on uvloop, which is what the command uses, and on asyncio's own loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.gateway.playing import played as run


@pytest.fixture(params=["uvloop", "asyncio"])
def played(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return partial(run, loop=request.param)
