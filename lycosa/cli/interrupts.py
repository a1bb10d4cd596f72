"""Repeat a Ctrl-C that Python has lost: Python ignores exceptions in destructors, import locks and some callbacks.

A `KeyboardInterrupt` raised there is only reported as "Exception ignored in ...", and the command would continue. A
command imports this module first. It imports little itself, because an interrupt during these imports can be lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

REPEAT_AFTER_S = 0.01


@contextmanager
def repeat_lost_interrupts() -> Iterator[None]:
    """Send SIGINT again if Python ignores a `KeyboardInterrupt` within the block."""
    report = sys.unraisablehook

    def repeat_or_report(ignored: Any) -> None:
        if ignored.exc_type is KeyboardInterrupt:
            from threading import Thread

            # A thread sends SIGINT after this hook has returned: an exception in the hook would be ignored, too.
            Thread(target=_interrupt, name="repeat-interrupt", daemon=True).start()
        else:
            report(ignored)

    sys.unraisablehook = repeat_or_report
    try:
        yield
    finally:
        sys.unraisablehook = report


def _interrupt() -> None:
    import os
    import signal
    import time

    time.sleep(REPEAT_AFTER_S)
    os.kill(os.getpid(), signal.SIGINT)
