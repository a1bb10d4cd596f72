"""Child processes that end with the program that started them, even if a signal comes while one starts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

Process = TypeVar("Process", bound="subprocess.Popen[Any]")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
TERMINATED = 143
STOPPED = {"T", "t", "Z"}
"""The states of threads that run no more."""

_deferred: list[int] | None = None
"""Signals that came within `deferred_signals`; None outside."""


def handle_signals() -> None:
    """End this program at SIGTERM as at Ctrl-C: `with` blocks exit, and end the processes they started."""
    for each in SIGNALS:
        signal.signal(each, end_program)


def end_program(number: int, _frame: object) -> None:
    """Handle a signal. Raise KeyboardInterrupt for SIGINT, SystemExit for SIGTERM.

    Later signals are ignored: they must not interrupt the end of the processes.
    """
    if _deferred is not None:
        _deferred.append(number)
        return
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(TERMINATED)


@contextmanager
def deferred_signals() -> Iterator[None]:
    """Defer signals to the end of the block, so that none comes between the start of a process and its registration.

    Without `handle_signals`, signals are not deferred. A block within another one has no effect.
    """
    global _deferred
    if _deferred is not None:
        yield
        return
    _deferred = []
    try:
        yield
    finally:
        came, _deferred = _deferred, None
        if came:
            end_program(came[0], None)


@contextmanager
def started(command: Sequence[str | Path], **options: Any) -> Iterator[subprocess.Popen[str]]:
    """Run a process while the block runs. Its standard output is a pipe; `options` are those of `Popen`."""
    with ExitStack() as stack:
        with deferred_signals():
            process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options))
            stack.enter_context(ended(process))
        yield process


@contextmanager
def ended(process: Process) -> Iterator[Process]:
    """Kill a process at the end of the block."""
    try:
        yield process
    finally:
        with deferred_signals():
            process.kill()
            process.wait()


def suspend(pid: int) -> None:
    """Send SIGSTOP, and wait until all threads of the process have stopped: until then, a thread may still answer."""
    os.kill(pid, signal.SIGSTOP)
    while any(_state(thread) not in STOPPED for thread in Path(f"/proc/{pid}/task").iterdir()):
        pass


def _state(thread: Path) -> str:
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]
