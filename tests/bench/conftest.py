"""Helpers for tests of the programs in bench/."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

from tests.conftest import ROOT


@contextmanager
def programs(*names: str, folder: str = "bench") -> Iterator[SimpleNamespace]:
    """Import programs by their file names, in the way they import each other, and unload them after the block."""
    modules_before = set(sys.modules)
    folders = [str(ROOT / each) for each in dict.fromkeys(("bench", folder))]
    sys.path[:0] = folders
    try:
        yield SimpleNamespace(**{name: __import__(name) for name in names})
    finally:
        for each in folders:
            sys.path.remove(each)
        for name in set(sys.modules) - modules_before:
            if str(getattr(sys.modules[name], "__file__", "")).startswith(folders[0]):
                del sys.modules[name]
