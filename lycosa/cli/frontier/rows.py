"""What the verbs of `lycosa frontier` share: their options, how the state is opened, and how rows look.

On standard output: aligned columns, or a JSON object a line. Colours only on a terminal.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from functools import wraps
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import click
import msgspec
import msgspec.structs

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.config import Settings
from lycosa.core.errors import UsageError
from lycosa.core.units import format_duration, parse_duration
from lycosa.frontier.core.explain import UrlFacts
from lycosa.frontier.core.keys import Fingerprint
from lycosa.frontier.core.model import AddressView, HostView, Row, SegmentView, Selection, UrlRecord
from lycosa.frontier.core.segments import find_segment
from lycosa.frontier.ports import FrontierOperations

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
STATES = ("queued", "leased", "delayed", "retry", "done", "dead", "archived")
COLORS = {"dead": "red", "retry": "yellow", "leased": "cyan", "done": "green", "finished": "green", "dropped": "red"}
REASONS_SHOWN = 8
ENOUGH_S = 1e12
TIMES = ("_at", "until")
"""How the names of fields end that are times; 0 is none."""

SLICE = 1000
"""Rows read or changed at a time; a live owner gives fewer."""

STATE_OPTIONS = (
    click.option("--state", "state_dir", metavar="DIR", help="State of the crawl. [default: the only one]"),
    click.option("--frontier", metavar="redis://...", help="Where the crawl is that several workers share."),
    click.option("--crawl-name", metavar="NAME", help="Its name there. [default: the only one]"),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, an object a line.")


class Where(NamedTuple):
    """Which crawl is meant: the folder of a state, or a name in a frontier that several workers share."""

    state_dir: str | None
    frontier: str | None
    crawl_name: str | None


def state_option(command: F) -> F:
    """Add the options that say which crawl is meant; the command gets them as `where`."""

    @wraps(command)
    def told(*args: Any, state_dir: str | None, frontier: str | None, crawl_name: str | None, **options: Any) -> Any:
        return command(*args, where=Where(state_dir, frontier, crawl_name), **options)

    for option in reversed(STATE_OPTIONS):
        told = option(told)
    return told  # type: ignore[return-value]


class Opened(Protocol):
    """A crawl that was opened (`lycosa.app.frontier.operations.OpenState`, which is imported when it is used)."""

    @property
    def place(self) -> str:
        """What it is called."""
        ...

    @property
    def path(self) -> Path | None:
        """Its folder, if it has one."""
        ...

    @property
    def runs(self) -> str:
        """Where it runs, "" when it does not."""
        ...

    @property
    def description(self) -> Any:
        """What it says of its crawl."""
        ...

    @property
    def operations(self) -> FrontierOperations:
        """Its frontier."""
        ...

    @property
    def pid(self) -> int:
        """The live owner of a state, 0 for none."""
        ...

    @property
    def key_of(self) -> Fingerprint:
        """How the crawl identifies its requests."""
        ...

    async def look_up(self, url: str) -> list[tuple[str, UrlFacts]]:
        """What is known of a URL, by the names of the spiders."""
        ...

    def owned(self, record: UrlRecord) -> UrlRecord:
        """Return a record as that of its spider."""
        ...


def selection_options(command: F) -> F:
    """Add the options that say which URLs are meant."""
    command = where_options(command)
    return click.option("--status", "states", multiple=True, metavar="STATE,...", help=f"Of {', '.join(STATES)}.")(
        command
    )


def where_options(command: F) -> F:
    """Add those that do not speak of the state."""
    for option in reversed(WHERE):
        command = option(command)
    return command


WHERE = (
    click.option("--segment", metavar="S", help='Only those of this segment; "" is the one without a name.'),
    click.option("--host", metavar="URL", help="Only those of this host, written https://example.com."),
    click.option("--url", metavar="GLOB", help="Only those whose canonical URL matches."),
    click.option("--reason", metavar="GLOB", help="Only those that are done or dead for a reason that matches."),
    click.option(
        "--before", metavar="AGE|TIME", help="Only those done or dead for longer than 3d, 12h, 90m, or before a time."
    ),
)


def selection_of(
    states: Sequence[str] = (),
    segment: str | None = None,
    host: str | None = None,
    url: str | None = None,
    reason: str | None = None,
    before: str | None = None,
) -> Selection:
    """Return what these options mean. Raises `UsageError`: nothing may be empty, since that would mean everything."""
    from lycosa.core.url import canonicalize, host_key

    for name, value in (("host", host), ("url", url), ("reason", reason), ("before", before)):
        if value is not None and not value.strip():
            raise UsageError(f"--{name} is empty: write what it is to be, or leave it out")
    words = tuple(word.strip() for text in states for word in text.split(","))
    for word in words:
        if word not in STATES:
            raise UsageError(f"--status: {word!r} is not one of {', '.join(STATES)}")
    return Selection(
        words,
        segment,
        host_key(canonicalize(host)) if host else "",
        url or "",
        reason or "",
        moment(before, time.time()) if before else 0.0,
    )


def moment(text: str, now: float) -> float:
    """Return the time that an age (`3d`, `90m`) or an ISO time means, local unless it says otherwise."""
    age_s = parse_duration(text) if text.strip()[-1:].isalpha() else None  # 20261121 is a date
    try:
        at = datetime.fromisoformat(text.strip()).timestamp() if age_s is None else now - age_s
    except (ValueError, OverflowError, OSError):
        at = 0.0
    if not 0 < at < ENOUGH_S:
        raise UsageError(f"--before: {text!r} is neither an age (3d, 12h, 90m, 30s) nor a time (2026-11-21T10:30)")
    return at


async def slices(operations: FrontierOperations, selection: Selection) -> AsyncIterator[list[Row]]:
    """Yield the rows that are meant, slice by slice; no slice is empty."""
    after: str | None = ""
    while after is not None:
        rows, after = await operations.rows(selection, after, SLICE)
        if rows:
            yield rows
        await between_slices()


async def refuse_unknown(operations: FrontierOperations, selection: Selection) -> None:
    """Raise `UsageError` when a segment is meant that is not there: nothing found would mean that it is empty."""
    if selection.segment is not None:
        find_segment(selection.segment, await operations.segments())


async def between_slices() -> None:
    """Let Ctrl-C in: nothing that is done to a stopped state ever waits."""
    await asyncio.sleep(0)


def run(where: Where, story: Callable[[Opened], Awaitable[T]], *, make: bool = False) -> T:
    """Open the crawl that is meant, and do this with it. `make` it, and say so, where there is none."""
    from lycosa.cli.crawl.spiders import enter_project, project_settings

    enter_project()  # a function that the state names may lie there
    settings = project_settings()
    if where.state_dir is not None and where.frontier is not None:
        raise UsageError("--state and --frontier exclude each other: a crawl is in a folder or in a Redis")
    if where.crawl_name is not None and not (where.frontier or settings.frontier):
        raise UsageError("--crawl-name is the name of a crawl in a Redis: give --frontier redis://host:6379/0 too")

    async def told() -> T:
        async with _opened(where, settings, make=make) as state:
            return await story(state)

    return asyncio.run(told())


def _opened(where: Where, settings: Settings, *, make: bool) -> AbstractAsyncContextManager[Opened]:
    from lycosa.app.frontier.operations import find_state, make_state, opened, opened_shared

    def say(line: str) -> None:
        progress.write([one_line(line)])

    frontier = where.frontier or settings.frontier
    if frontier and where.state_dir is None:
        beginning = (settings.partitions, settings.keep_done) if make else None
        return opened_shared(frontier, where.crawl_name or settings.crawl_name, say, beginning=beginning)
    given = where.state_dir or settings.state
    if make and given and make_state(Path(given)):
        progress.write([f"{given}: a new state was made, since there was none"])
    return opened(find_state(given, Path(settings.home)), say=say)


def when(at: float, now: float) -> str:
    """Return a time as people read it: in the local time zone, and how long it is from now."""
    try:
        local = datetime.fromtimestamp(at).astimezone().replace(tzinfo=None).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
    away = format_duration(abs(at - now))
    return f"{local} ({'in ' + away if at > now else away + ' ago'})"


def counts(reasons: Mapping[str, int]) -> str:
    """Return the most frequent reasons: " (200: 120, 404: 3)"."""
    ranked = sorted(reasons.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{one_line(reason)}: {number:,}" for reason, number in ranked[:REASONS_SHOWN]]
    rest = sum(number for _, number in ranked[REASONS_SHOWN:])
    return f" ({', '.join([*shown, *([f'others: {rest:,}'] if rest else [])])})" if shown else ""


def json_line(value: object) -> None:
    """Write one JSON object."""
    print(msgspec.json.encode(value).decode())


class Table:
    """Aligned columns that are written as they come: a column is as wide as its widest cell so far.

    Names that begin with `>` are columns of numbers. The last column is not padded. `least`: the width of columns whose
    cells come one after the other, so that later ones do not move.
    """

    def __init__(
        self,
        *names: str,
        style: int | None = None,
        colors: Mapping[str, str] = COLORS,
        least: Mapping[str, int] | None = None,
    ) -> None:
        self._right = [name.startswith(">") for name in names]
        self._names = [name.removeprefix(">") for name in names]
        self._widths = [max(len(name), (least or {}).get(name, 0)) for name in self._names]
        self._style, self._colors = style, colors
        self._begun = False

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """Write rows, and the header before the first of them."""
        cells = [[one_line(cell) for cell in row] for row in rows]
        for row in cells:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._begun and rows:
            self._begun = True
            print_styled(self._line(self._names), "bold")
        for row in cells:
            print_styled(self._line(row), self._colors.get(row[self._style], "") if self._style is not None else "")

    def _line(self, row: Sequence[str]) -> str:
        *first, last = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, self._widths, self._right, strict=True)
        )
        return "  ".join([*first, last.rstrip()]).rstrip()


def print_styled(text: str, style: str) -> None:
    """Write a line to standard output, in colour on a terminal. rich obeys NO_COLOR."""
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(text, style=style), soft_wrap=True)


def row_cells(row: Row, now: float) -> list[str]:
    """Return the columns of a URL."""
    return [row.state, when(row.at, now) if row.at else "-", row.reason or "-", row.record.url]


def segment_cells(view: SegmentView, now: float) -> list[str]:
    """Return the columns of a segment."""
    numbers = (view.queued, view.leased, view.delayed, view.done, view.dead)
    return [
        view.name or "(no name)",
        view.state,
        when(view.starts_at, now) if view.starts_at else "-",
        *map(_n, numbers),
    ]


def host_cells(view: HostView, now: float) -> list[str]:
    """Return the columns of a host."""
    return [
        view.host,
        _n(view.queued),
        _n(view.in_flight),
        _ready_in(view, now),
        when(view.blocked_until, now) if view.blocked_until > now else "-",
        f"{view.delay_s:g} s" if view.delay_s else "-",
        _address(view, now),
        "-" if view.robots_status < 0 else str(view.robots_status) if view.robots_status else "none",
    ]


def _ready_in(view: HostView, now: float) -> str:
    """Return when a host may be asked, its address included."""
    ready_at = max(view.ready_at, view.shared.ready_at if view.shared else 0.0)
    if view.preparing:
        return "asking"
    if _is_busy(view) or (view.shared and _is_busy(view.shared)):
        return "busy"
    return format_duration(ready_at - now) if ready_at > now else "now" if view.queued else "-"


def _address(view: HostView, now: float) -> str:
    shared = view.shared
    if shared is None or not shared.address:
        return view.address or "-"
    if _is_busy(shared):
        return f"{shared.address} (busy: {shared.in_flight:,} of {shared.concurrency:,})"
    return (
        f"{shared.address} (in {format_duration(shared.ready_at - now)})" if shared.ready_at > now else shared.address
    )


def _is_busy(view: HostView | AddressView) -> bool:
    return 0 < view.concurrency <= view.in_flight


def view_json(view: HostView | SegmentView) -> dict[str, Any]:
    """Return a host or a segment for `--json`: what is not known, and what never was, is null."""
    return _told(msgspec.structs.asdict(view))


def _told(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _known(name, value) for name, value in fields.items()}


def _known(name: str, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return _told(msgspec.structs.asdict(value))
    if name == "robots_status":
        return None if value < 0 else value
    return value or None if name.endswith(TIMES) else value


def row_json(row: Row) -> dict[str, Any]:
    """Return a URL for `list --json`: what is wanted of it to look at; `export` has all."""
    record = row.record
    whose = {"spider": record.extras.spider} if record.extras is not None and record.extras.spider else {}
    return {
        "url": record.url,
        **whose,
        "state": row.state,
        "segment": record.segment,
        "host": record.host,
        "at": row.at or None,
        "reason": row.reason,
        "attempts": record.attempts,
        "priority": record.priority,
        "depth": record.depth,
        "fingerprint": f"{record.fingerprint:016x}",
    }


def _n(number: int) -> str:
    return f"{number:,}"
