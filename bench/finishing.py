"""The end of a benchmark: prints, writes and checks the results, and ends all processes it has started."""

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
    name: str, blocks: Mapping[str, str], floors: Sequence[report.Verdict], *, write: bool, quick: bool = False
) -> int:
    """Print the result with its floors, and write it into the document. Return 1 if a floor does not hold."""
    lines = "\n".join(f"- {line}" for line in report.verdict_lines(floors)) or "None at this size."
    blocks = {**blocks, f"{name}-floors": lines}
    print("", *blocks.values(), sep="\n\n")
    if write:
        report.write(DOCUMENT, blocks)
        print(f"wrote {DOCUMENT.relative_to(ROOT)}")
    return 0 if quick or all(each.holds for each in floors) else 1


_waiting: list[int] | None = None
"""Signals that came within `deferred_signals`; None outside."""


def _ends(number: int, _frame: object) -> None:
    if _waiting is not None:
        _waiting.append(number)
    elif number == signal.SIGINT:
        raise KeyboardInterrupt
    else:
        sys.exit(TERMINATED)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals to the end of the block, so that a process started in it is registered for its end."""
    global _waiting  # noqa: PLW0603  signals are of the process
    _waiting = []
    try:
        yield
    finally:
        came, _waiting = _waiting, None
        if came:
            _ends(came[0], None)


def in_order(main: Callable[[], int]) -> int:
    """Run a program so that SIGTERM ends it like Ctrl-C: `with` blocks exit, and end the processes they started."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _ends)
    try:
        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at exit
        return TERMINATED


@contextmanager
def ended(process: Process) -> Iterator[Process]:
    """Kill a process at the end of the block."""
    try:
        yield process
    finally:
        process.kill()
        process.wait()
