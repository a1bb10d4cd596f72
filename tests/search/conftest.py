"""Fixtures of the tests of search indexes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_device(tmp_path) -> Iterator[Path]:
    """A folder with room for 12 MB."""
    path = tmp_path / "small"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", path], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    yield path
    subprocess.run(["umount", "-l", path], check=True)
