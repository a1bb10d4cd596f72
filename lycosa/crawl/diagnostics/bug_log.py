"""Logs each bug in the user's code once, and counts its repeats.

A bug is a class of exception raised at one line of the user's code. The first occurrence is logged with a traceback
that begins at the user's code. Repeats are counted, and their number is logged at most every REPEAT_EVERY_S. The
summary of the crawl lists all bugs. This way a callback that fails on every page does not flood the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from traceback import format_exception, walk_tb
from types import TracebackType

from lycosa.crawl.diagnostics.tracebacks import user_frame, user_line, user_traceback

log = logging.getLogger(__name__)

BUGS_MAX = 100
"""Maximum number of bugs that are counted separately; further bugs are counted together."""

REPEAT_EVERY_S = 30.0
"""Minimum seconds between two log lines about the repeats of a bug."""

DETAIL_MAX = 200
"""Maximum number of characters of the message of a bug, and of its URL. The rest is cut off."""

TRACE_MAX = 20_000
"""Maximum number of characters of a traceback that a worker process sends."""

FURTHER = "further bugs"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


@dataclass(slots=True)
class Bug:
    """`function` failed `count` times at `place` (`quotes.py:12`, "" if no line of the user's code is involved).

    `detail` and `url` ("" if there is none) belong to the first failure. `key` identifies the bug, and is the same in
    all processes.
    """

    key: str
    function: str
    detail: str
    place: str = ""
    url: str = ""
    count: int = 1
    reason: str = ""
    """The stored reason for which the page of the first failure is dead; "" if the page is not dead."""
    trace: str = ""
    """The formatted traceback. Set only while a worker process sends the bug to the owner of the crawl."""

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count:,} times"
        place = f" ({self.place})" if self.place else ""
        first = f", {'first ' * (self.count > 1)}on {self.url}" if self.url else ""
        return f"{self.function} failed {times}: {self.detail}{place}{first}"


@dataclass(slots=True)
class _Repeats:
    """The repeats of a bug since its last log line."""

    next_line_at: float
    count: int = 0


class BugLog:
    """The bugs of one run. `now` returns the seconds of a monotonic clock."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._bugs: dict[str, Bug] = {}
        self._repeats: dict[str, _Repeats] = {}

    def record(
        self,
        error: BaseException,
        function: str,
        detail: str,
        url: str = "",
        reason: str = "",
        *,
        with_traceback: bool = True,
    ) -> None:
        """Log or count an exception that `function` raised.

        `url` is the page on which the function failed, and `reason` why this page is dead; both are "" if no page is
        involved. `detail` is the text to log. If it explains the mistake, pass `with_traceback=False`.
        """
        bug = Bug(_key_of(error, function), function, detail, user_line(error), url, reason=reason)
        self._add(bug, _exc_info(error) if with_traceback else None)

    def merge(self, bug: Bug) -> None:
        """Log or count a bug that a worker process returned from `take`."""
        self._add(bug, None)

    def take(self) -> list[Bug]:
        """Return the bugs that the owner of the crawl must merge: none, because this class has logged them."""
        return []

    def most_frequent(self) -> list[Bug]:
        """Return the bugs, the most frequent first."""
        return sorted(self._bugs.values(), key=lambda bug: -bug.count)

    def _add(self, bug: Bug, exc_info: ExcInfo | None) -> None:
        if bug.key not in self._bugs and len(self._bugs) >= BUGS_MAX:
            bug = replace(bug, key=FURTHER, function=f"{FURTHER} ({bug.function})")
        known = self._bugs.get(bug.key)
        if known is None:
            self._bugs[bug.key] = replace(bug, detail=bug.detail[:DETAIL_MAX], url=bug.url[:DETAIL_MAX], trace="")
            self._on_first(bug, exc_info)
        else:
            known.count += bug.count
            self._on_repeat(known, bug)

    def _on_first(self, bug: Bug, exc_info: ExcInfo | None) -> None:
        self._repeats[bug.key] = _Repeats(self._now() + REPEAT_EVERY_S, bug.count - 1)
        where = f" on {bug.url}" if bug.url else ""
        trace = f"\n{bug.trace}" if bug.trace else ""
        log.error("%s failed%s: %s%s", bug.function, where, bug.detail, trace, exc_info=exc_info)

    def _on_repeat(self, known: Bug, latest: Bug) -> None:
        repeats, now = self._repeats[known.key], self._now()
        repeats.count += latest.count
        if now < repeats.next_line_at:
            return
        place = f" ({known.place})" if known.place else ""
        last = f", last on {latest.url}" if latest.url else ""
        log.error("%s failed %d more times: %s%s%s", known.function, repeats.count, known.detail, place, last)
        self._repeats[known.key] = _Repeats(now + REPEAT_EVERY_S)


class WorkerBugLog(BugLog):
    """The bugs of a worker process. Logs nothing: the owner of the crawl merges the bugs that `take` returns."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: dict[str, Bug] = {}

    def take(self) -> list[Bug]:
        """Return the bugs since the last call. Only the first occurrence has a traceback."""
        taken, self._pending = list(self._pending.values()), {}
        return taken

    def _on_first(self, bug: Bug, exc_info: ExcInfo | None) -> None:
        trace = "".join(format_exception(*exc_info)).rstrip() if exc_info else ""
        self._pending[bug.key] = _sendable(replace(bug, trace=trace[:TRACE_MAX]))

    def _on_repeat(self, known: Bug, latest: Bug) -> None:
        pending = self._pending.setdefault(known.key, _sendable(replace(latest, count=0)))
        pending.count += latest.count


def _exc_info(error: BaseException) -> ExcInfo:
    return type(error), error, user_traceback(error) or error.__traceback__


def _key_of(error: BaseException, function: str) -> str:
    """Return the key of a bug: the exception class, and the innermost line of the user's code in the traceback.

    Without user code in the traceback, the key is the class, the innermost line and `function`.
    """
    kind, place = type(error).__name__, user_frame(error)
    if place is not None:
        return f"{kind} {place[0]}:{place[1]}"
    ours = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)][-1:]
    return f"{kind} {ours} {function}"


def _sendable(bug: Bug) -> Bug:
    """Return the bug without lone surrogates, which cannot be sent."""
    texts = {name: getattr(bug, name) for name in ("key", "function", "detail", "place", "url", "reason", "trace")}
    return replace(bug, **{name: text.encode("utf-8", "replace").decode() for name, text in texts.items()})
