"""The end of a benchmark: prints, writes and checks the results, and ends all processes it has started."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

import report
from running import DOCUMENT, ROOT

sys.path.insert(0, str(ROOT))

from tests.servers.children import TERMINATED, handle_signals

INTERRUPTED = 130


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


def in_order(main: Callable[[], int]) -> int:
    """Run a program so that SIGTERM ends it like Ctrl-C: `with` blocks exit, and end the processes they started."""
    handle_signals()
    try:
        return main()
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader of standard output has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes it at exit
        return TERMINATED
