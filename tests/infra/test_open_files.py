"""The limit of open files."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from lycosa.infra.open_files import raise_open_files_limit


@pytest.fixture
def soft() -> Iterator[int]:
    """Lower the soft limit for a test."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = before - 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowered, hard))
    yield lowered
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_the_limit_is_raised_as_far_as_needed_and_allowed_and_never_lowered(soft: int) -> None:
    assert raise_open_files_limit(10) == soft
    assert raise_open_files_limit(soft + 50) == soft + 50
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        assert raise_open_files_limit(10 * hard) == hard
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == hard
