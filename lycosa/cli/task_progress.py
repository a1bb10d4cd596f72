"""Show the progress of a command on standard error: a live line, or regular lines."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lycosa.cli.crawl import progress
from lycosa.core.units import format_count, format_duration

PLAIN_EVERY_S = 5.0
LIVE_EVERY_S = 0.25

ShowProgress = Callable[[int, int], None]


@contextmanager
def task_progress(
    noun: str, verb: str, total: int | Callable[[], int], *, shares_terminal: bool = False
) -> Iterator[ShowProgress]:
    """Yield a function `show(rows, done)`: the number of rows handled, and how much of `total` is done.

    `total` is a number of rows or bytes, 0 if unknown. A terminal shows a live line, other outputs get a line every
    PLAIN_EVERY_S seconds. `shares_terminal`: rows go to standard output, so there is no live line if standard output is
    a terminal.
    """
    started = time.monotonic()

    def line(rows: int, done: int) -> str:
        elapsed_s = time.monotonic() - started
        text = f"{format_count(rows, noun)} {verb}, {rows / elapsed_s:,.0f}/s"
        left = (total() if callable(total) else total) - done
        if done and left > 0:
            text += f", {format_duration(elapsed_s * left / done)} to go"
        return text

    if not has_terminal(shares_terminal=shares_terminal):
        yield _limit_rate(PLAIN_EVERY_S, lambda rows, done: progress.write([line(rows, done)]))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True, redirect_stdout=False) as live:
        yield _limit_rate(LIVE_EVERY_S, lambda rows, done: live.update(Text(line(rows, done)), refresh=True))


def has_terminal(*, shares_terminal: bool = False) -> bool:
    """Return whether standard error is a terminal that can show a live line."""
    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return False
    return not (shares_terminal and sys.stdout.isatty())


def _limit_rate(every_s: float, show: ShowProgress) -> ShowProgress:
    due = time.monotonic() + every_s

    def show_if_due(rows: int, done: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + every_s
            show(rows, done)

    return show_if_due
