"""Fixtures of the tests of the frontier."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.redis_client import close_redis_clients


@pytest.fixture(autouse=True)
def closed_redis_clients() -> Iterator[None]:
    yield
    close_redis_clients()
