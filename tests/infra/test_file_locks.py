"""A released lock is free immediately, also while child processes are being started (C1, F1)."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lycosa.app.search import erase_index, open_index
from lycosa.frontier.state_dir import StateDir
from lycosa.proxies.folder.folder import PoolFolder
from lycosa.search.ports import DocumentIndex
from lycosa.storage.sinks.file import FileSink


class Items:
    """An open file of items."""

    def __init__(self, path: Path) -> None:
        self._sink = FileSink(path)
        asyncio.run(self._sink.open(None))

    def close(self) -> None:
        asyncio.run(self._sink.close())


class Erased:
    """An index that was erased."""

    def __init__(self, path: Path) -> None:
        erase_index(path)

    def close(self) -> None:
        """Do nothing: it is closed already."""


class Checked(Erased):
    """A file of items that was checked."""

    def __init__(self, path: Path) -> None:
        path.touch()
        asyncio.run(FileSink(path).check())


def index(path: Path) -> DocumentIndex:
    return open_index(path, write=True)


@pytest.mark.parametrize(
    ("first", "second"),
    [(StateDir, StateDir), (PoolFolder, PoolFolder), (index, index), (Erased, index), (Items, Items), (Checked, Items)],
    ids=lambda each: each.__name__,
)
def test_a_child_process_that_is_being_started_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: Callable[[Path], Any], second: Callable[[Path], Any]
) -> None:
    """Until it executes its program, a child has copies of all descriptors."""
    path = tmp_path / "path"
    with ExitStack() as children:
        flock = fcntl.flock

        def lock_and_duplicate(file: int, operation: int) -> None:
            flock(file, operation)
            children.callback(os.close, os.dup(file))

        monkeypatch.setattr("fcntl.flock", lock_and_duplicate)
        first(path).close()
        second(path).close()
