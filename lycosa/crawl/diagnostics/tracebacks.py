"""What a log shows of an exception in the user's code: his own lines, and the same place once.

A traceback begins with the first line that is not ours; one without such a line is shown whole: it may be our mistake.
A callback that fails on every page would bury all else: from the second time on the line of the page has to do.
"""

from __future__ import annotations

from types import TracebackType

from lycosa.crawl.diagnostics.user_errors import PACKAGE_DIR

PLACES_MAX = 1000
"""Places that are remembered; what fails in further ones is shown each time."""

Shown = tuple[type[BaseException], BaseException, TracebackType | None]


class Tracebacks:
    """Remembers what was shown."""

    def __init__(self) -> None:
        self._places: set[tuple[type[BaseException], str, int]] = set()

    def of(self, error: BaseException) -> Shown | None:
        """Return what `exc_info` of a log call is to be: None for what was shown before."""
        trace = users(error) or error.__traceback__
        last = trace
        while last is not None and last.tb_next is not None:
            last = last.tb_next
        if last is not None:
            place = type(error), last.tb_frame.f_code.co_filename, last.tb_lineno
            if place in self._places:
                return None
            if len(self._places) < PLACES_MAX:
                self._places.add(place)
        return type(error), error, trace


def users(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception from the first line of the user's code on, if there is one."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((PACKAGE_DIR, "<")):
        trace = trace.tb_next
    return trace
