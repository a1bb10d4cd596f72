"""Logs each bug in the user's code once, and counts its repeats, because a callback may fail on every page.

A bug is an exception class raised at one line of the user's code. It is logged with a traceback that begins at the
user's code. The number of repeats is logged at most every REPEAT_EVERY_S.
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
"""Further bugs are counted together."""

REPEAT_EVERY_S = 30.0

DETAIL_MAX = 200
"""Maximum characters of the message of a bug, and of its URL."""

TRACE_MAX = 20_000
"""Maximum characters of a traceback that a worker process sends."""

FURTHER = "further bugs"

ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


@dataclass(slots=True)
class Bug:
    """`function` failed `count` times at `place` (`quotes.py:12`, "" if no user code is involved).

    `detail` and `url` ("" if there is none) are those of the first failure. `key` is the same in all processes.
    """

    key: str
    function: str
    detail: str
    place: str = ""
    url: str = ""
    count: int = 1
    reason: str = ""
    """Why the page of the first failure is dead; "" if it is not."""
    trace: str = ""
    """The formatted traceback; set only while a worker process sends the bug to the owner."""

    def __str__(self) -> str:
        times = "once" if self.count == 1 else f"{self.count:,} times"
        place = f" ({self.place})" if self.place else ""
        first = f", {'first ' * (self.count > 1)}on {self.url}" if self.url else ""
        return f"{self.function} failed {times}: {self.detail}{place}{first}"


@dataclass(slots=True)
class _Repeats:
    next_line_at: float
    count: int = 0


class BugLog:
    """The bugs of one run. `now` returns monotonic seconds."""

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

        `reason`: why the page at `url` is dead ("" if it is not). `detail` is the text to log; if it explains the
        mistake, pass `with_traceback=False`.
        """
        bug = Bug(_key_of(error, function), function, detail, user_line(error), url, reason=reason)
        self._add(bug, _exc_info(error) if with_traceback else None)

    def merge(self, bug: Bug) -> None:
        """Log or count a bug from the `take` of a worker process."""
        self._add(bug, None)

    def take(self) -> list[Bug]:
        """Return the bugs that the owner must merge. There are none here, because this class logs its bugs itself."""
        return []

    def most_frequent(self) -> list[Bug]:
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
    """The bugs of a worker process. The owner of the crawl merges and logs what `take` returns."""

    def __init__(self) -> None:
        super().__init__()
        self._pending: dict[str, Bug] = {}

    def take(self) -> list[Bug]:
        """Return the new bugs and repeats since the last call. Only the first occurrence of a bug has a traceback."""
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
    """Identify a bug by its exception class and the innermost line of user code.

    Without user code in the traceback: by class, innermost line and `function`.
    """
    kind, place = type(error).__name__, user_frame(error)
    if place is not None:
        return f"{kind} {place[0]}:{place[1]}"
    ours = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)][-1:]
    return f"{kind} {ours} {function}"


def _sendable(bug: Bug) -> Bug:
    """Replace lone surrogates, which cannot be sent."""
    texts = {name: getattr(bug, name) for name in ("key", "function", "detail", "place", "url", "reason", "trace")}
    return replace(bug, **{name: text.encode("utf-8", "replace").decode() for name, text in texts.items()})
