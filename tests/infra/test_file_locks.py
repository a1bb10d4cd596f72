"""A released lock is free at once, also while child processes are being started (C1, F1)."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lycosa.frontier.state_dir import StateDir
from lycosa.proxies.folder.folder import PoolFolder
from lycosa.search import tantivy
from lycosa.search.tantivy import TantivyIndex
from lycosa.storage.sinks.jsonl import JsonlSink


class Items:
    """A file of items that is open."""

    def __init__(self, path: Path) -> None:
        self._sink = JsonlSink(path)
        asyncio.run(self._sink.open(None))

    def close(self) -> None:
        asyncio.run(self._sink.close())


class Erased:
    """An index that is erased."""

    def __init__(self, path: Path) -> None:
        tantivy.erase(path)

    def close(self) -> None:
        """Do nothing: it was closed."""


class Checked(Erased):
    """A file of items that is checked."""

    def __init__(self, path: Path) -> None:
        path.touch()
        asyncio.run(JsonlSink(path).check())


def index(path: Path) -> TantivyIndex:
    return TantivyIndex(path, write=True)


@pytest.mark.parametrize(
    ("opens", "then"),
    [(StateDir, StateDir), (PoolFolder, PoolFolder), (index, index), (Erased, index), (Items, Items), (Checked, Items)],
    ids=lambda each: each.__name__,
)
def test_a_child_that_has_not_started_its_program_yet_keeps_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, opens: Callable[[Path], Any], then: Callable[[Path], Any]
) -> None:
    """It has copies of all descriptors until then."""
    path = tmp_path / "path"
    with ExitStack() as children:
        flock = fcntl.flock

        def locked(file: int, operation: int) -> None:
            flock(file, operation)
            children.callback(os.close, os.dup(file))

        monkeypatch.setattr("fcntl.flock", locked)
        opens(path).close()
        then(path).close()
