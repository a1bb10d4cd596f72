"""The end of a benchmark: what is printed, written and judged, and that nothing it started goes on without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import report
from running import DOCUMENT, ROOT

Process = TypeVar("Process", bound="subprocess.Popen[Any]")
INTERRUPTED = 130
TERMINATED = 143


def finish(
    name: str, blocks: Mapping[str, str], checks: Sequence[report.Verdict], *, write: bool, quick: bool = False
) -> int:
    """Print what came of it, the floors at the end, and put it into the document. Return 1 when a floor is not held."""
    floors = "\n".join(f"- {line}" for line in report.verdict_lines(checks)) or "None at this size."
    blocks = {**blocks, f"{name}-floors": floors}
    print("", *blocks.values(), sep="\n\n")
    if write:
        report.write(DOCUMENT, blocks)
        print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return 0 if quick or all(each.holds for each in checks) else 1


_waiting: list[int] | None = None
"""Signals that came within `undivided`; None outside."""


def _ends(number: int, _frame: object) -> None:
    if _waiting is not None:
        _waiting.append(number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(TERMINATED)


@contextmanager
def undivided() -> Iterator[None]:
    """Let signals wait until the end of the block, in which something is started and put where it will be ended."""
    global _waiting  # noqa: PLW0603  signals are of the process
    _waiting = []
    try:
        yield
    finally:
        came, _waiting = _waiting, None
        if came:
            _ends(came[0], None)


def in_order(main: Callable[[], int]) -> int:
    """Run a program that SIGTERM ends as Ctrl-C does: blocks are left, and so what was started in them is ended."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _ends)
    try:
        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of the output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is written at the end of the process
        return TERMINATED


@contextmanager
def ended(process: Process) -> Iterator[Process]:
    """Have a process while the block runs, and none of it afterwards."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
