"""Finds the user's code in a traceback or stack: code outside Lycosa, the standard library and installed packages."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from traceback import walk_tb
from types import TracebackType

PACKAGE_DIR = f"{Path(__file__).parents[2]}/"

LIBRARIES = tuple({f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PACKAGES = ("/site-packages/", "/dist-packages/")


def is_user_file(file: str) -> bool:
    """Whether a source file belongs to the user."""
    return not file.startswith((PACKAGE_DIR, *LIBRARIES, "<frozen ")) and not any(name in file for name in PACKAGES)


def user_traceback(error: BaseException) -> TracebackType | None:
    """Return the traceback, starting at the first frame outside Lycosa; None if there is none."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((PACKAGE_DIR, "<")):
        trace = trace.tb_next
    return trace


def user_function(error: BaseException, default: str) -> str:
    """Return the name of the first function outside Lycosa in the traceback, else `default`."""
    trace = user_traceback(error)
    return default if trace is None else trace.tb_frame.f_code.co_name


def user_line(error: BaseException) -> str:
    """Return the innermost line of user code in the traceback, like `quotes.py:12`, or ""."""
    frame = user_frame(error)
    return f"{Path(frame[0]).name}:{frame[1]}" if frame is not None else ""


def user_frame(error: BaseException) -> tuple[str, int] | None:
    """Return the file and line of the innermost user code in the traceback, or None."""
    places = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    return next((place for place in reversed(places) if is_user_file(place[0])), None)
