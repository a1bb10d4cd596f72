"""Child processes of `multiprocessing` that must not outlive their parent."""

from __future__ import annotations

import multiprocessing
import os
import signal
from threading import Thread


def end_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL. Ignore Ctrl-C, which the parent handles."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
