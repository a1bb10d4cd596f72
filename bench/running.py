"""Shared by the programs of this folder: paths, arguments, progress lines, processor cores."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "benchmarks.md"

Figures = dict[str, Any]


def count(text: str) -> int:
    """Read an argument that is a number, at least 1."""
    number = int(text.replace("_", ""))
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text}: at least 1")
    return number


def progress(line: object) -> None:
    """Print a line of progress on standard error."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def on_cores(*cores: int) -> Iterator[None]:
    """Run this process, and those started in the block, on these cores."""
    mine = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)
