"""What the commands of `lycosa frontier` share: their options, opening the crawl, and the output of rows.

Rows are written to standard output as aligned columns or as one JSON object per line.
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
from typing import Any, NamedTuple, TypeVar

import click
import msgspec
import msgspec.structs

from lycosa.app.frontier.operations import OpenState
from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.config import Settings
from lycosa.core.errors import UsageError
from lycosa.core.units import format_duration, parse_duration
from lycosa.frontier.core.model import AddressView, HostView, Row, SegmentView, Selection
from lycosa.frontier.core.segments import find_segment
from lycosa.frontier.ports import FrontierOperations

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
STATES = ("queued", "leased", "delayed", "retry", "done", "dead", "archived")
COLORS = {"dead": "red", "retry": "yellow", "leased": "cyan", "done": "green", "finished": "green", "dropped": "red"}
TIME_MAX_S = 1e12
TIME_SUFFIXES = ("_at", "until")
"""Suffixes of the names of time fields. In these fields 0 means no time."""

SLICE = 1000
"""Maximum number of rows read or changed in one call. The owner of a running crawl returns fewer."""

CRAWL_OPTIONS = (
    click.option("--state", "state_dir", metavar="DIR", help="State folder. [default: the only one in .lycosa/]"),
    click.option("--frontier", metavar="redis://...", help="Server of a shared crawl."),
    click.option("--crawl-name", metavar="NAME", help="Name of a shared crawl. [default: the only one on the server]"),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Write JSON, one object per line.")


class CrawlLocation(NamedTuple):
    """The location of a crawl: a state folder, or the server and name of a shared crawl."""

    state_dir: str | None
    frontier: str | None
    crawl_name: str | None


def crawl_options(command: F) -> F:
    """Add the options that select a crawl, as the argument `location`."""

    @wraps(command)
    def wrapped(*args: Any, state_dir: str | None, frontier: str | None, crawl_name: str | None, **options: Any) -> Any:
        return command(*args, location=CrawlLocation(state_dir, frontier, crawl_name), **options)

    for option in reversed(CRAWL_OPTIONS):
        wrapped = option(wrapped)
    return wrapped  # type: ignore[return-value]


def selection_options(command: F) -> F:
    """Add all options that select URLs."""
    command = filter_options(command)
    help_text = f"Only URLs in these states: {', '.join(STATES)}."
    return click.option("--status", "states", multiple=True, metavar="STATE,...", help=help_text)(command)


def filter_options(command: F) -> F:
    """Add the options that select URLs, except --status."""
    for option in reversed(FILTER_OPTIONS):
        command = option(command)
    return command


FILTER_OPTIONS = (
    click.option("--segment", metavar="S", help='Only URLs of this segment; "" is the segment without a name.'),
    click.option("--host", metavar="URL", help="Only URLs of this host, given as https://example.com."),
    click.option("--url", metavar="GLOB", help="Only URLs whose canonical form matches."),
    click.option("--reason", metavar="GLOB", help="Only done or dead URLs whose reason matches."),
    click.option(
        "--before",
        metavar="AGE|TIME",
        help="Only URLs that ended (done, dead) before this time (2026-11-21), or longer ago than this (3d, 12h, 90m).",
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
    """Return the selection. Raises `UsageError` for invalid values, and for empty ones, which would select everything.
    Only `segment` may be "", the segment without a name."""
    from lycosa.core.url import canonicalize, host_key

    for name, value in (("host", host), ("url", url), ("reason", reason), ("before", before)):
        if value is not None and not value.strip():
            raise UsageError(f"--{name} is empty: give a value, or leave the option out")
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
        parse_time(before, time.time()) if before else 0.0,
    )


def parse_time(text: str, now: float, option: str = "--before") -> float:
    """Convert an age (`3d`, `90m`) or an ISO time to unix seconds. A time without a zone is local time."""
    age_s = parse_duration(text) if text.strip()[-1:].isalpha() else None  # 20261121 is a date
    try:
        at = datetime.fromisoformat(text.strip()).timestamp() if age_s is None else now - age_s
    except (ValueError, OverflowError, OSError):
        at = 0.0
    if not 0 < at < TIME_MAX_S:
        raise UsageError(f"{option}: {text!r} is neither an age (3d, 12h, 90m, 30s) nor a time (2026-11-21T10:30)")
    return at


async def slices(operations: FrontierOperations, selection: Selection) -> AsyncIterator[list[Row]]:
    """Yield the selected rows in non-empty slices."""
    cursor: str | None = ""
    while cursor is not None:
        rows, cursor = await operations.rows(selection, cursor, SLICE)
        if rows:
            yield rows
        await between_slices()


async def check_segment(operations: FrontierOperations, selection: Selection) -> None:
    """Raise `UsageError` for a missing segment, because it would look like an empty segment."""
    if selection.segment is not None:
        find_segment(selection.segment, await operations.segments())


async def between_slices() -> None:
    """Yield to the event loop so that Ctrl-C works. Operations on a stopped state never yield."""
    await asyncio.sleep(0)


def run(location: CrawlLocation, action: Callable[[OpenState], Awaitable[T]], *, create: bool = False) -> T:
    """Open the crawl and run an action on it. With `create`, create a missing crawl, and report its creation."""
    from lycosa.cli.crawl.spiders import enter_project, project_settings

    enter_project()  # the state may refer to a function of the project
    settings = project_settings()
    if location.state_dir is not None and location.frontier is not None:
        raise UsageError("--state and --frontier exclude each other: a crawl is in a folder or on a Redis server")
    if location.crawl_name is not None and not (location.frontier or settings.frontier):
        raise UsageError("--crawl-name is the name of a crawl on a Redis server: add --frontier redis://host:6379/0")

    async def open_and_run() -> T:
        async with _open(location, settings, create=create) as state:
            return await action(state)

    return asyncio.run(open_and_run())


def report_line(line: str) -> None:
    """Write a message to standard error."""
    progress.write([one_line(line)])


def _open(location: CrawlLocation, settings: Settings, *, create: bool) -> AbstractAsyncContextManager[OpenState]:
    from lycosa.app.frontier.operations import create_state, find_state, open_shared, open_state

    frontier = location.frontier or settings.frontier
    if frontier and location.state_dir is None:
        options = (settings.partitions, settings.keep_done) if create else None
        return open_shared(frontier, location.crawl_name or settings.crawl_name, report_line, create=options)
    state_dir = location.state_dir or settings.state
    if create and state_dir and create_state(Path(state_dir)):
        progress.write([f"{state_dir}: created a new state"])
    return open_state(find_state(state_dir, Path(settings.home)), report=report_line)


def format_time(at: float, now: float) -> str:
    """Format unix seconds as local time with the distance from now."""
    try:
        local = datetime.fromtimestamp(at).astimezone().replace(tzinfo=None).isoformat(" ", "seconds")
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"
    distance = format_duration(abs(at - now))
    return f"{local} ({'in ' + distance if at > now else distance + ' ago'})"


def print_json(value: object) -> None:
    """Print one JSON object."""
    print(msgspec.json.encode(value).decode())


def print_result(fields: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Print a result as JSON or as text."""
    if as_json:
        print_json(fields)
    else:
        print(text)


class TextTable:
    """A table that prints each row at once. Each column is as wide as its widest cell so far.

    A `>` before the name of a column right-aligns its cells. `min_widths` has minimum widths by name. The text in the
    column with index `style` selects the colour of its row in `colors`.
    """

    def __init__(
        self,
        *names: str,
        style: int | None = None,
        colors: Mapping[str, str] = COLORS,
        min_widths: Mapping[str, int] | None = None,
    ) -> None:
        self._right = [name.startswith(">") for name in names]
        self._names = [name.removeprefix(">") for name in names]
        self._widths = [max(len(name), (min_widths or {}).get(name, 0)) for name in self._names]
        self._style, self._colors = style, colors
        self._has_header = False

    def write(self, rows: Sequence[Sequence[str]]) -> None:
        """Print rows, with the header before the first row."""
        cells = [[one_line(cell) for cell in row] for row in rows]  # remote text may have terminal control characters
        for row in cells:
            self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, row, strict=True)]
        if not self._has_header and rows:
            self._has_header = True
            print_styled(self._line(self._names), "bold")
        for row in cells:
            print_styled(self._line(row), self._colors.get(row[self._style], "") if self._style is not None else "")

    def _line(self, row: Sequence[str]) -> str:
        *first, last = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, self._widths, self._right, strict=True)
        )
        return "  ".join([*first, last.rstrip()]).rstrip()


def print_rows(
    table: TextTable,
    rows: Sequence[T],
    to_cells: Callable[[T], Sequence[str]],
    to_json: Callable[[T], object],
    *,
    as_json: bool,
) -> None:
    """Print rows, as JSON objects or in a table."""
    if as_json:
        for row in rows:
            print_json(to_json(row))
    else:
        table.write([to_cells(row) for row in rows])


def print_styled(text: str, style: str) -> None:
    """Print a line, in colour on a terminal. rich obeys NO_COLOR."""
    if not style or not sys.stdout.isatty():
        print(text)
        return
    from rich.console import Console
    from rich.text import Text

    Console(highlight=False).print(Text(text, style=style), soft_wrap=True)  # otherwise rich breaks long lines


def row_cells(row: Row, now: float) -> list[str]:
    """Return the cells for the columns of `list`."""
    return [row.state, format_time(row.at, now) if row.at else "-", row.reason or "-", row.record.url]


def segment_cells(view: SegmentView, now: float) -> list[str]:
    """Return the cells for the columns of `segments`."""
    numbers = (view.queued, view.leased, view.delayed, view.done, view.dead)
    return [
        view.name or "(no name)",
        view.state,
        format_time(view.starts_at, now) if view.starts_at else "-",
        *map(_n, numbers),
    ]


def host_cells(view: HostView, now: float) -> list[str]:
    """Return the cells for the columns of `hosts`."""
    return [
        view.host,
        _n(view.queued),
        _n(view.in_flight),
        _ready_in(view, now),
        format_time(view.blocked_until, now) if view.blocked_until > now else "-",
        f"{view.delay_s:g} s" if view.delay_s else "-",
        _address(view, now),
        "-" if view.robots_status < 0 else str(view.robots_status) if view.robots_status else "none",
    ]


def _ready_in(view: HostView, now: float) -> str:
    """Format the time until a host may be contacted, by its own limits and those of its IP address."""
    ready_at = max(view.ready_at, view.shared.ready_at if view.shared else 0.0)
    if view.preparing:
        return "preparing"
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
    """Return a host or a segment for `--json`, with null for unknown values and unset times."""
    return {name: _json_value(name, value) for name, value in msgspec.structs.asdict(view).items()}


def _json_value(name: str, value: Any) -> Any:
    if isinstance(value, msgspec.Struct):
        return {each: _json_value(each, inner) for each, inner in msgspec.structs.asdict(value).items()}
    if name == "robots_status":
        return None if value < 0 else value
    return value or None if name.endswith(TIME_SUFFIXES) else value


def row_json(row: Row) -> dict[str, Any]:
    """Return a URL for `list --json`. Only `export` writes all fields."""
    record = row.record
    spider = {"spider": record.extras.spider} if record.extras is not None and record.extras.spider else {}
    return {
        "url": record.url,
        **spider,
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
