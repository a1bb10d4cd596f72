"""The commands of `lycosa frontier` that change a crawl.

Long operations commit after each slice, so repeating an interrupted command completes it. Memory use does not depend on
the number of URLs.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import click
from msgspec.structs import replace

from lycosa.app.frontier.operations import OpenState, delete_shared
from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DEAD, one_line
from lycosa.cli.frontier.rows import (
    SLICE,
    CrawlLocation,
    between_slices,
    check_segment,
    crawl_options,
    filter_options,
    json_option,
    print_result,
    report_line,
    run,
    selection_of,
    selection_options,
    slices,
)
from lycosa.cli.task_progress import LIVE_EVERY_S, PLAIN_EVERY_S, ShowProgress, task_progress
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count, format_size
from lycosa.frontier.core.model import Extras, SegmentState, UrlRecord
from lycosa.frontier.core.rows import ENDED, from_text, to_line
from lycosa.frontier.core.segments import find_segment, validate_name
from lycosa.infra.line_files import STREAM, file_size, new_file, numbered_lines

BATCH_ROWS = 1000
BATCH_BYTES = 8 << 20
"""An import commits after BATCH_ROWS rows, or when the lines since the last commit have BATCH_BYTES bytes."""

LINE_MAX = 24 << 20
"""Maximum bytes of an imported line."""

INVALID_SHOWN = 20
"""Maximum number of invalid lines that are printed; the others are only counted."""


@click.command("requeue", short_help="Queue failed URLs again.")
@crawl_options
@click.option("--dead", is_flag=True, help="Requeue dead URLs. [default]")
@click.option("--done", is_flag=True, help="Requeue done URLs, to fetch them again.")
@click.option("--into", metavar="S", help="Queue copies in this segment, and leave the URLs unchanged.")
@filter_options
@json_option
def requeue(location: CrawlLocation, dead: bool, done: bool, into: str | None, as_json: bool, **selected: Any) -> None:
    """Queue failed (dead) URLs again, or done ones. Their attempts are counted from zero.

    \b
    lycosa frontier requeue --reason 'timeout*' --before 1h
    lycosa frontier requeue --done --url 'https://example.com/news/*' --into 2026-11-22
    """
    states = [name for name, is_set in (("dead", dead), ("done", done)) if is_set]
    selection = selection_of(states or ["dead"], **selected)
    validate_name(into or "")

    async def action(state: OpenState) -> int:
        _refuse_closed(into, await _closed_segments(state))  # before the first slice changes anything
        await check_segment(state.operations, selection)
        total, cursor, now = 0, "", time.time()
        await state.expire_unreachable_robots(selection, now)
        while True:
            result = await state.operations.requeue(selection, into, now, cursor, SLICE)
            await state.operations.commit()  # after each slice, so that a running crawl is not blocked for long
            total += result.requeued
            if result.next_cursor is None:
                return total
            cursor = result.next_cursor
            await between_slices()

    total = run(location, action)
    print_result({"requeued": total}, f"{format_count(total, 'URL')} queued again", as_json=as_json)


@click.command("drop")
@click.argument("segment", metavar="SEGMENT")
@crawl_options
@click.option("--force", is_flag=True, help="Drop the segment even if some of its URLs have not been fetched yet.")
@json_option
def drop(segment: str, location: CrawlLocation, force: bool, as_json: bool) -> None:
    """Forget a segment and its URLs. A dropped segment accepts no URLs; other segments may queue the same URLs."""
    if not segment:
        raise UsageError(
            "the unnamed segment is the crawl itself and cannot be dropped: start the crawl afresh with -O, or a "
            "shared crawl under another --crawl-name"
        )

    async def action(state: OpenState) -> int:
        view = find_segment(segment, await state.operations.segments())
        left = view.queued + view.leased + view.delayed
        if left and not force:
            raise UsageError(
                f"the segment has {format_count(left, 'URL')} not fetched yet: use --force to drop it anyway"
            )
        dropped = await state.operations.drop(segment)
        await state.operations.commit()
        return dropped

    total = run(location, action)
    text = f"segment {one_line(segment)} dropped: {format_count(total, 'URL')} forgotten"
    print_result({"segment": segment, "dropped": total}, text, as_json=as_json)


@click.command("delete", short_help="Delete a shared crawl.")
@click.option("--frontier", metavar="URL", help="Server of the crawl: redis://host:6379/0")
@click.option("--crawl-name", metavar="NAME", help="Name of the crawl on this server.")
@click.option("--force", is_flag=True, help="Delete it even if it has workers, or URLs that have not been fetched yet.")
@json_option
def delete(frontier: str | None, crawl_name: str | None, force: bool, as_json: bool) -> None:
    """Delete a shared crawl from its Redis: its URLs, robots.txt files, cookies and positions of outputs.

    Items and the states of its workers stay. If the deletion is interrupted, no worker can join the crawl; the same
    command finishes the deletion.

    \b
    lycosa frontier delete --frontier redis://host:6379/0 --crawl-name shop
    """
    from lycosa.cli.crawl.spiders import project_settings

    if not (url := frontier or project_settings().frontier):
        raise UsageError("delete is for a crawl on a Redis server: add --frontier redis://host:6379/0")
    if not crawl_name:
        raise UsageError("which crawl? Give its --crawl-name: this command never guesses it")
    urls = asyncio.run(delete_shared(url, crawl_name, report_line, force=force))
    text = f"crawl {one_line(crawl_name)} deleted: {format_count(urls, 'URL')} forgotten"
    print_result({"crawl": crawl_name, "deleted": urls}, text, as_json=as_json)


@click.command("archive", short_help="Make a finished segment read-only.")
@click.argument("segment", metavar="SEGMENT")
@crawl_options
@json_option
def archive(segment: str, location: CrawlLocation, as_json: bool) -> None:
    """Make a finished segment read-only. Its URLs stay done or dead."""

    async def action(state: OpenState) -> bool:
        archived = await state.operations.archive(segment)
        await state.operations.commit()
        return archived

    shown = one_line(segment) or "(no name)"
    if not run(location, action):
        raise UsageError(f"segment {shown} is not finished, or is already archived")
    print_result({"segment": segment, "archived": True}, f"segment {shown} archived", as_json=as_json)


@click.command("export", short_help="Write URLs as JSON lines.")
@click.argument("file", metavar="[FILE|-]", default=STREAM)
@crawl_options
@selection_options
def export(file: str, location: CrawlLocation, **selected: Any) -> None:
    """Write URLs as JSON lines, with all fields that `import` needs, to a new file or to standard output.

    Each line has url, and these fields if they differ from their defaults: state, segment, priority, depth,
    redirects, attempts, not_before, at, reason, method, headers, body (base64), callback, meta, cb_kwargs, errback,
    cookies, encoding, flags, spider, etag, modified, fetched_at, guarded, dont_filter, fingerprint. meta_packed and
    kwargs_packed (msgpack in base64) replace meta and cb_kwargs that JSON cannot represent. Times are unix seconds.
    URLs that a running crawl moves between states during the export may be missing.

    \b
    lycosa frontier export dead.jsonl --status dead
    """
    selection = selection_of(**selected)

    async def action(state: OpenState) -> int:
        await check_segment(state.operations, selection)
        total = 0
        with new_file(file) as stream, task_progress("URL", "exported", 0) as show:
            async for rows in slices(state.operations, selection):
                stream.write(b"".join([to_line(row) + b"\n" for row in rows]))
                total += len(rows)
                show(total, 0)
        return total

    total = run(location, action)
    progress.write([f"{format_count(total, 'URL')} exported" + ("" if file == STREAM else f" to {file}")])


@click.command("import", short_help="Queue URLs from a file or from standard input.")
@click.argument("file", metavar="FILE|-")
@crawl_options
@click.option("--segment", metavar="S", help="Segment for all URLs.")
@click.option("--priority", type=click.IntRange(-(1 << 31), 1 << 31), metavar="N", help="Priority of all URLs.")
@click.option("--all", "everything", is_flag=True, help="Also queue URLs that the file lists as done or archived.")
@click.option("--strict", is_flag=True, help="Stop at the first invalid line.")
@json_option
def import_(
    file: str,
    location: CrawlLocation,
    segment: str | None,
    priority: int | None,
    everything: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Queue URLs: one per line, or the JSON lines of an export. Blank lines and # comments are ignored.

    Queued, leased and dead URLs of an export are queued as new, with no attempts counted. Delayed URLs, also those in
    the state retry, keep their due time; their attempts are not counted either. Done and archived URLs are skipped
    unless --all is given. URLs that the crawl already knows are skipped, so an interrupted import can be repeated.
    Invalid lines are reported and skipped; the exit code is then 1.

    A missing --state folder is created if its parent exists; the next crawl with it starts with the imported URLs. A
    missing shared crawl is created under its --crawl-name.

    \b
    lycosa frontier import seeds.txt
    zcat seeds.gz | lycosa frontier import -
    """
    validate_name(segment or "")

    async def action(state: OpenState) -> Importer:
        overrides = {"segment": segment, "priority": priority}
        return await import_lines(state, stream, "imported", overrides, everything=everything, strict=strict)

    with open_input(file) as stream:  # opened first, so that no state is created if the file cannot be read
        result = run(location, action, create=True)
    return print_import_result(result, as_json=as_json)


@click.command("verify", short_help="Check the stored data for errors.")
@crawl_options
@json_option
def verify(location: CrawlLocation, as_json: bool) -> int:
    """Read all stored data and report inconsistencies; the exit code is 1 if there are any.

    A running crawl is paused in the meantime. A shared crawl keeps running; its errors are repaired where the correct
    value is certain.
    """

    async def action(state: OpenState) -> list[str]:
        return await state.operations.verify(_throttled_report())

    found = run(location, action)
    summary = f"{format_count(len(found), 'error')} found" if found else "no errors found"
    print_result({"found": found}, "\n".join([*map(one_line, found), summary]), as_json=as_json)
    return DEAD if found else 0


@click.command("compact")
@crawl_options
@json_option
def compact(location: CrawlLocation, as_json: bool) -> None:
    """Release unused disk space, or memory of a shared frontier. A crawl that uses the state is paused meanwhile."""

    async def action(state: OpenState) -> tuple[int, int]:
        return await state.operations.compact()

    before, after = run(location, action)
    text = f"{format_size(before)} before, {format_size(after)} after"
    print_result({"before_bytes": before, "after_bytes": after}, text, as_json=as_json)


COMMANDS = (requeue, drop, delete, archive, export, import_, verify, compact)


def print_import_result(result: Importer, *, as_json: bool) -> int:
    """Print the counts of an import. Return the exit code."""
    fields = {"queued": result.queued, "known": result.known, "left_out": result.left_out, "bad": result.bad}
    text = f"{format_count(result.queued, 'URL')} queued, {result.known:,} already known"
    text += f", {result.left_out:,} skipped because done or archived" if result.left_out else ""
    text += f", {format_count(result.bad, 'invalid line')} skipped" if result.bad else ""
    print_result(fields, text, as_json=as_json)
    return DEAD if result.bad else 0


async def import_lines(
    state: OpenState,
    stream: BinaryIO,
    verb: str,
    overrides: Mapping[str, Any],
    *,
    everything: bool = False,
    strict: bool = False,
) -> Importer:
    """Import all lines of a stream into a crawl, with a progress display. Raises `UsageError`.

    `overrides` has the segment and the priority for all lines, and may have the spider. None leaves it to each line.
    """
    with task_progress("URL", verb, file_size(stream)) as show:
        closed = await _closed_segments(state)
        _refuse_closed(overrides["segment"], closed)
        importer = Importer(state, closed, overrides, everything=everything, strict=strict)
        await importer.read(stream, show)
        return importer


class Importer:
    """Reads lines and pushes them in batches. `left_out` counts the skipped lines of done and archived URLs."""

    def __init__(
        self,
        state: OpenState,
        closed: Mapping[str, SegmentState],
        overrides: Mapping[str, Any],
        *,
        everything: bool,
        strict: bool,
    ) -> None:
        self._operations = state.operations
        self._closed = closed
        self._fingerprint_of, self._with_spider = state.fingerprint_of, state.with_spider
        self._everything = everything
        self._strict = strict
        self._spider = overrides.get("spider")
        self._changes = {name: overrides[name] for name in ("segment", "priority") if overrides[name] is not None}
        self._batch: list[UrlRecord] = []
        self.queued = self.known = self.left_out = self.bad = 0

    async def read(self, stream: BinaryIO, show: ShowProgress) -> None:
        """Import all lines. If strict, an invalid line raises `UsageError`; the lines before it are imported."""
        size = position = 0
        for number, line in numbered_lines(stream, LINE_MAX):
            position += len(line)
            size += len(line)
            try:
                self._add(number, line.strip())
            except UsageError:
                await self._push()  # the message says that the lines before the invalid one are imported
                raise
            if len(self._batch) >= BATCH_ROWS or size >= BATCH_BYTES:
                await self._push()
                size = 0
                show(self.queued + self.known, position)
        await self._push()

    def _add(self, number: int, line: bytes) -> None:
        if not line or line[:1] == b"#":
            return
        if len(line) > LINE_MAX:
            self._reject(number, UsageError(f"the line is longer than {LINE_MAX:,} bytes"))
            return
        try:
            row = from_text(line, self._fingerprint_of)
        except UsageError as error:
            self._reject(number, error)
            return
        if row.state in ENDED and row.state != "dead" and not self._everything:
            self.left_out += 1
            return
        record = replace(row.record, **self._changes) if self._changes else row.record
        if self._spider:
            record = replace(record, extras=replace(record.extras or Extras(), spider=self._spider))
        try:
            record = self._with_spider(record)
            _refuse_closed(record.segment, self._closed)
        except UsageError as error:
            self._reject(number, error)
            return
        self._batch.append(record)

    def _reject(self, number: int, error: UsageError) -> None:
        if self._strict:
            raise UsageError(f"line {number:,}: {error}; the lines before it are imported")
        self.bad += 1
        if self.bad <= INVALID_SHOWN:
            progress.write([f"line {number:,}: {one_line(str(error))}"])

    async def _push(self) -> None:
        batch, self._batch = self._batch, []
        if batch:
            pushed = await self._operations.push(batch)
            await self._operations.commit()
            self.queued += pushed
            self.known += len(batch) - pushed
            await between_slices()


async def _closed_segments(state: OpenState) -> dict[str, SegmentState]:
    views = await state.operations.segments()
    return {view.name: view.state for view in views if view.state in (SegmentState.ARCHIVED, SegmentState.DROPPED)}


def _refuse_closed(segment: str | None, closed: Mapping[str, SegmentState]) -> None:
    if segment is not None and segment in closed:
        state = "archived" if closed[segment] is SegmentState.ARCHIVED else "dropped"
        raise UsageError(f"segment {segment!r} was {state} and accepts no URLs: use another one")


@contextmanager
def open_input(file: str) -> Iterator[BinaryIO]:
    """Open a file, or standard input for `-`. Raises `UsageError`."""
    if file == STREAM:
        yield sys.stdin.buffer
        return
    try:
        stream = Path(file).open("rb")  # noqa: SIM115  closed below; only errors of open() are caught here
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {(error.strerror or str(error)).lower()}") from None
    with stream:
        if stat.S_ISDIR(os.fstat(stream.fileno()).st_mode):
            raise UsageError(f"{file} is a folder")
        yield stream


def _throttled_report() -> Callable[[str], None]:
    due = time.monotonic() + LIVE_EVERY_S

    def report(text: str) -> None:
        nonlocal due
        task = asyncio.current_task()
        if task is not None and task.cancelling():  # Ctrl-C: the operation never awaits, so it would not notice
            raise asyncio.CancelledError
        if time.monotonic() >= due:
            due = time.monotonic() + PLAIN_EVERY_S
            progress.write([one_line(text)])

    return report
