"""`lycosa frontier requeue | drop | archive | export | import | verify | compact`: what a crawl itself never would do.

What is long goes in slices with a commit after each: an end in the middle leaves what was done, and the same command
does the rest. Memory does not depend on how much there is.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import click
from msgspec.structs import replace

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DEAD, one_line
from lycosa.cli.frontier.rows import (
    SLICE,
    Opened,
    Where,
    between_slices,
    json_line,
    json_option,
    refuse_unknown,
    run,
    selection_of,
    selection_options,
    slices,
    state_option,
    where_options,
)
from lycosa.core.errors import StorageError, UsageError
from lycosa.core.units import format_duration, format_size
from lycosa.frontier.core.model import Extras, SegmentState, UrlRecord
from lycosa.frontier.core.rows import ENDED, from_text, to_line
from lycosa.frontier.core.segments import find_segment, validate_name

BATCH_ROWS = 1000
BATCH_BYTES = 8 << 20
"""An import commits after so many rows, or so many bytes of lines."""

LINE_MAX = 24 << 20
"""Bytes of one line of an import."""

BAD_SHOWN = 20
"""Bad lines that are shown; the others are only counted."""

STREAM = "-"
PLAIN_EVERY_S = 5.0
LIVE_EVERY_S = 0.25
PART = ".part"

Show = Callable[[int, int], None]


@click.command("requeue", short_help="Queue dead URLs again, or those that are done.")
@state_option
@click.option("--dead", is_flag=True, help="The dead ones. [default: these]")
@click.option("--done", is_flag=True, help="Those that are done: fetch them again.")
@click.option("--into", metavar="S", help="Push copies into this segment, and leave them what they are in theirs.")
@where_options
@json_option
def requeue(where: Where, dead: bool, done: bool, into: str | None, as_json: bool, **selected: Any) -> None:
    """Queue dead URLs again, or those that are done, with all their attempts.

    \b
    lycosa frontier requeue --reason 'timeout*' --before 1h
    lycosa frontier requeue --done --url 'https://example.com/news/*' --into 2026-11-22
    """
    states = [name for name, wanted in (("dead", dead), ("done", done)) if wanted]
    selection = selection_of(states or ["dead"], **selected)
    validate_name(into or "")

    async def story(state: Opened) -> int:
        _refuse_closed(into, await _closed(state))
        await refuse_unknown(state.operations, selection)
        total, after, now = 0, "", time.time()
        while True:
            moved = await state.operations.requeue(selection, into, now, after, SLICE)
            await state.operations.commit()
            total += moved.requeued
            if moved.next_cursor is None:
                return total
            after = moved.next_cursor
            await between_slices()

    total = run(where, story)
    if as_json:
        json_line({"requeued": total})
    else:
        print(f"{progress.count(total, 'URL')} queued again")


@click.command("drop")
@click.argument("segment", metavar="SEGMENT")
@state_option
@click.option("--force", is_flag=True, help="Drop it although some of its URLs are still to be fetched.")
@json_option
def drop(segment: str, where: Where, force: bool, as_json: bool) -> None:
    """Forget a segment with all its URLs. It takes no more: what was in it may only come back in another one."""
    if not segment:
        raise UsageError(
            "the segment without a name is the crawl itself: to forget it, start the crawl afresh with -O, a "
            "shared one under another --crawl-name"
        )

    async def story(state: Opened) -> int:
        view = find_segment(segment, await state.operations.segments())
        left = view.queued + view.leased + view.delayed
        if left and not force:
            raise UsageError(f"{progress.count(left, 'URL')} of it not fetched yet: --force drops it all the same")
        dropped = await state.operations.drop(segment)
        await state.operations.commit()
        return dropped

    total = run(where, story)
    if as_json:
        json_line({"segment": segment, "dropped": total})
    else:
        print(f"segment {one_line(segment) or '(no name)'} dropped: {progress.count(total, 'URL')} forgotten")


@click.command("archive")
@click.argument("segment", metavar="SEGMENT")
@state_option
@json_option
def archive(segment: str, where: Where, as_json: bool) -> None:
    """Make a finished segment read only: it takes no more, and what is in it stays what it is."""

    async def story(state: Opened) -> bool:
        archived = await state.operations.archive(segment)
        await state.operations.commit()
        return archived

    if not run(where, story):
        raise UsageError(f"segment {segment or '(no name)'} is not finished, or archived already")
    if as_json:
        json_line({"segment": segment, "archived": True})
    else:
        print(f"segment {one_line(segment) or '(no name)'} archived")


@click.command("export", short_help="Write URLs as JSON lines.")
@click.argument("file", metavar="[FILE|-]", default=STREAM)
@state_option
@selection_options
def export(file: str, where: Where, **selected: Any) -> None:
    """Write URLs as JSON lines, to a new file or to standard output, with all that `import` needs to make them again.

    A line has url, and of these what is not usual: state, segment, priority, depth, redirects, attempts, not_before,
    at, reason, method, headers, body (base64), callback, meta, cb_kwargs, errback, cookies, encoding, flags,
    spider, etag, modified, fetched_at, dont_filter, fingerprint. Times are unix seconds. A crawl that runs meanwhile
    may move a URL from one state to the next unseen.

    \b
    lycosa frontier export dead.jsonl --status dead
    """
    selection = selection_of(**selected)

    async def story(state: Opened) -> int:
        await refuse_unknown(state.operations, selection)
        total = 0
        with _output(file) as stream, _shown("exported", 0) as show:
            async for rows in slices(state.operations, selection):
                stream.write(b"".join([to_line(row) + b"\n" for row in rows]))
                total += len(rows)
                show(total, 0)
        return total

    total = run(where, story)
    progress.write([f"{progress.count(total, 'URL')} exported" + ("" if file == STREAM else f" to {file}")])


@click.command("import", short_help="Queue URLs from a file or from standard input.")
@click.argument("file", metavar="FILE|-")
@state_option
@click.option("--segment", metavar="S", help="Put all of them into this segment.")
@click.option(
    "--priority", type=click.IntRange(-(1 << 31), 1 << 31), metavar="N", help="Give all of them this priority."
)
@click.option("--all", "everything", is_flag=True, help="Fetch again what the file says is done or archived.")
@click.option("--strict", is_flag=True, help="End at the first bad line.")
@json_option
def import_(
    file: str,
    where: Where,
    segment: str | None,
    priority: int | None,
    everything: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Queue URLs: plain ones, one a line, or the JSON lines of an export. Blank lines and # comments are passed over.

    What waits, was lent or is dead in the file is queued as new, with all its attempts; what was to be fetched later
    still is. What is done is left out, unless --all is given. URLs that the crawl knows are left out too, so that an
    import that was ended can be given again. Bad lines are told and passed over, with exit code 1 at the end.

    A state that is not there is made, if its folder is: the next crawl with this --state begins with what is in it. So
    is a crawl of this --crawl-name in a shared frontier.

    \b
    lycosa frontier import seeds.txt
    zcat seeds.gz | lycosa frontier import -
    """
    validate_name(segment or "")

    async def story(state: Opened) -> Importer:
        put = {"segment": segment, "priority": priority}
        return await imported(state, stream, "imported", put, everything=everything, strict=strict)

    with opened_input(file) as stream:  # before a state is made for what cannot be read
        done = run(where, story, make=True)
    return tell_imported(done, as_json=as_json)


@click.command("verify", short_help="Read all that is stored, and say what is wrong.")
@state_option
@json_option
def verify(where: Where, as_json: bool) -> int:
    """Read all that is stored, and say what does not fit together; the exit code is 1 when something does not.

    A crawl that runs stands still meanwhile; one that several workers share goes on, and what can be put right is.
    """

    async def story(state: Opened) -> list[str]:
        return await state.operations.verify(_say_now_and_then())

    found = run(where, story)
    if as_json:
        json_line({"found": found})
    else:
        for line in found:
            print(one_line(line))
        print(f"{progress.count(len(found), 'fault')} found" if found else "all is well")
    return DEAD if found else 0


@click.command("compact")
@state_option
@json_option
def compact(where: Where, as_json: bool) -> None:
    """Give unused room back to the disk, or memory of a shared frontier. Other crawls stand still meanwhile."""

    async def story(state: Opened) -> tuple[int, int]:
        return await state.operations.compact()

    before, after = run(where, story)
    if as_json:
        json_line({"before_bytes": before, "after_bytes": after})
    else:
        print(f"{format_size(before)} before, {format_size(after)} after")


MOVES = (requeue, drop, archive, export, import_, verify, compact)


def tell_imported(done: Importer, *, as_json: bool) -> int:
    """Say what became of an import. Return the exit code."""
    if as_json:
        json_line({"queued": done.queued, "known": done.known, "left_out": done.left_out, "bad": done.bad})
    else:
        text = f"{progress.count(done.queued, 'URL')} queued, {done.known:,} known before"
        text += f", {done.left_out:,} done in the file and left out" if done.left_out else ""
        print(text + (f", {progress.count(done.bad, 'bad line')} passed over" if done.bad else ""))
    return DEAD if done.bad else 0


async def imported(
    state: Opened,
    stream: BinaryIO,
    verb: str,
    put: Mapping[str, Any],
    *,
    everything: bool = False,
    strict: bool = False,
) -> Importer:
    """Read all lines of a stream into a crawl, and show how far it is. Raises `UsageError`.

    `put` has the segment, the priority and the spider of all of them; None, or nothing, where each has its own.
    """
    with _shown(verb, _size(stream)) as show:
        closed = await _closed(state)
        _refuse_closed(put["segment"], closed)
        importer = Importer(state, closed, put, everything=everything, strict=strict)
        await importer.read(stream, show)
        return importer


class Importer:
    """Reads lines into batches and pushes them. `left_out` counts what is done in the file."""

    def __init__(
        self,
        state: Opened,
        closed: Mapping[str, SegmentState],
        put: Mapping[str, Any],
        *,
        everything: bool,
        strict: bool,
    ) -> None:
        self._operations = state.operations
        self._closed = closed
        self._key_of, self._owned = state.key_of, state.owned
        self._everything = everything
        self._strict = strict
        self._spider = put.get("spider")
        self._changes = {name: put[name] for name in ("segment", "priority") if put[name] is not None}
        self._batch: list[UrlRecord] = []
        self.queued = self.known = self.left_out = self.bad = 0

    async def read(self, stream: BinaryIO, show: Show) -> None:
        """Import all lines. Raises `UsageError` when strict; what came before the bad line is in."""
        size = position = 0
        for number, line in lines(stream):
            position += len(line)
            size += len(line)
            try:
                self._take(number, line.strip())
            except UsageError:
                await self._push()
                raise
            if len(self._batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                await self._push()
                size = 0
                show(self.queued + self.known, position)
        await self._push()

    def _take(self, number: int, line: bytes) -> None:
        if not line or line[:1] == b"#":
            return
        if len(line) > LINE_MAX:
            self._complain(number, UsageError(f"the line is longer than {LINE_MAX:,} bytes"))
            return
        try:
            row = from_text(line, self._key_of)
        except UsageError as error:
            self._complain(number, error)
            return
        if row.state in ENDED and row.state != "dead" and not self._everything:
            self.left_out += 1
            return
        record = replace(row.record, **self._changes) if self._changes else row.record
        if self._spider:
            record = replace(record, extras=replace(record.extras or Extras(), spider=self._spider))
        try:
            record = self._owned(record)
            _refuse_closed(record.segment, self._closed)
        except UsageError as error:
            self._complain(number, error)
            return
        self._batch.append(record)

    def _complain(self, number: int, error: UsageError) -> None:
        if self._strict:
            raise UsageError(f"line {number:,}: {error}; what came before it is imported")
        self.bad += 1
        if self.bad <= BAD_SHOWN:
            progress.write([f"line {number:,}: {one_line(str(error))}"])

    async def _push(self) -> None:
        batch, self._batch = self._batch, []
        if batch:
            pushed = await self._operations.push(batch)
            await self._operations.commit()
            self.queued += pushed
            self.known += len(batch) - pushed
            await between_slices()


async def _closed(state: Opened) -> dict[str, SegmentState]:
    """Return the segments that take no more, and why."""
    views = await state.operations.segments()
    return {view.name: view.state for view in views if view.state in (SegmentState.ARCHIVED, SegmentState.DROPPED)}


def _refuse_closed(segment: str | None, closed: Mapping[str, SegmentState]) -> None:
    if segment is not None and segment in closed:
        what = "archived" if closed[segment] is SegmentState.ARCHIVED else "dropped"
        raise UsageError(f"segment {segment!r} was {what} and takes no more: name another one")


def lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines; of one that is too long only a beginning that is still too long."""
    number = 0
    while line := stream.readline(LINE_MAX + 2):
        number += 1
        yield number, line
        while len(line) > LINE_MAX + 1 and not line.endswith(b"\n"):
            line = stream.readline(LINE_MAX + 2)


@contextmanager
def opened_input(file: str) -> Iterator[BinaryIO]:
    """Yield a file, or standard input for `-`. Raises `UsageError`."""
    if file == STREAM:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115  closed below; only opening it may fail here
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    with stream:
        if stat.S_ISDIR(os.fstat(stream.fileno()).st_mode):
            raise UsageError(f"{file} is a folder")
        yield stream


@contextmanager
def _output(file: str) -> Iterator[BinaryIO]:
    """Yield what to write to. A file is there when it is complete, and not before."""
    if file == STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path, draft = Path(file), Path(file + PART)
    if path.exists():
        raise UsageError(f"{file} exists: give another name, or remove it first")
    try:
        with draft.open("wb") as stream:
            yield stream
        draft.replace(path)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


def _size(stream: BinaryIO) -> int:
    """Return the bytes of a file, 0 when that cannot be known."""
    try:
        found = os.fstat(stream.fileno())
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


@contextmanager
def _shown(verb: str, size_bytes: int) -> Iterator[Show]:
    """Yield what to call with the rows and bytes done: one live line on a terminal, elsewhere one every few seconds."""
    started = time.monotonic()

    def line(rows: int, done_bytes: int) -> str:
        took_s = time.monotonic() - started
        text = f"{progress.count(rows, 'URL')} {verb}, {rows / took_s:,.0f}/s"
        if done_bytes and size_bytes > done_bytes:
            text += f", {format_duration(took_s * (size_bytes - done_bytes) / done_bytes)} to go"
        return text

    if sys.stderr is None or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield _now_and_then(PLAIN_EVERY_S, lambda rows, done: progress.write([line(rows, done)]))
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(file=sys.stderr), auto_refresh=False, transient=True, redirect_stdout=False) as live:
        yield _now_and_then(LIVE_EVERY_S, lambda rows, done: live.update(Text(line(rows, done)), refresh=True))


def _now_and_then(every_s: float, show: Show) -> Show:
    due = time.monotonic() + every_s

    def shown(rows: int, done_bytes: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + every_s
            show(rows, done_bytes)

    return shown


def _say_now_and_then() -> Callable[[str], None]:
    due = time.monotonic() + LIVE_EVERY_S

    def say(text: str) -> None:
        nonlocal due
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # Ctrl-C: this never waits either
            raise asyncio.CancelledError
        if time.monotonic() >= due:
            due = time.monotonic() + PLAIN_EVERY_S
            progress.write([one_line(text)])

    return say
