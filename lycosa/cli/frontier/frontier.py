"""The commands of `lycosa frontier` that inspect a crawl.

They work on a stopped state, through the socket of a running crawl, or on a shared frontier.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from heapq import nlargest
from pathlib import Path
from typing import Any

import click

from lycosa.app.frontier.operations import OpenState
from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.changes import COMMANDS
from lycosa.cli.frontier.rows import (
    SLICE,
    CrawlLocation,
    TextTable,
    between_slices,
    check_segment,
    crawl_options,
    format_time,
    host_cells,
    json_option,
    print_json,
    print_rows,
    print_styled,
    row_cells,
    row_json,
    run,
    segment_cells,
    selection_of,
    selection_options,
    slices,
    view_json,
)
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count, format_size
from lycosa.frontier.core.model import HostView, SegmentState
from lycosa.frontier.ports import FrontierOperations

RATE_OVER_S = 1.0
"""Seconds over which the rate of a running crawl is measured."""

DROPPED_SHOWN = 10
"""Maximum number of dropped segments that are listed: a crawl with hourly segments may drop one each hour."""

LIST_LIMIT = 100
REASONS_SHOWN = 8
TOP_HOSTS = 1000
"""Maximum number of hosts that are kept in memory to sort them by queued URLs."""


@click.group("frontier", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Inspect the frontier of a crawl, and change it from outside the crawl.

    The commands work on stopped and on running crawls; with --frontier, on a crawl that several workers share. Without
    --state and --frontier, they use the only crawl in .lycosa/.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for each in COMMANDS:
    command.add_command(each)


@command.command("status", short_help="Show what a crawl has done and still has to do.")
@crawl_options
@json_option
def status(location: CrawlLocation, as_json: bool) -> None:
    """Show what a crawl has done and still has to do, and its rate."""
    run(location, lambda state: _status(state, as_json=as_json))


@command.command("segments")
@crawl_options
@json_option
def segments(location: CrawlLocation, as_json: bool) -> None:
    """List the segments in crawl order, then the latest dropped segments."""

    async def action(state: OpenState) -> None:
        views, now = await state.operations.segments(), time.time()
        hidden = max(0, sum(view.state is SegmentState.DROPPED for view in views) - DROPPED_SHOWN)
        if hidden and not as_json:
            progress.write([f"not shown: {format_count(hidden, 'segment')} dropped earlier; --json lists all"])
            first = next(place for place, view in enumerate(views) if view.state is SegmentState.DROPPED)
            views = [*views[:first], *views[first + hidden :]]
        table = TextTable("segment", "state", "starts", ">queued", ">leased", ">delayed", ">done", ">dead", style=1)
        print_rows(table, views, lambda view: segment_cells(view, now), view_json, as_json=as_json)

    run(location, action)


@command.command("hosts", short_help="List the hosts.")
@crawl_options
@click.option("--sort", type=click.Choice(["host", "queued"]), default="host", show_default=True, help="Sort order.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    metavar="N",
    help=f"Maximum hosts. [default: all; {TOP_HOSTS} with --sort queued]",
)
@json_option
def hosts(location: CrawlLocation, sort: str, limit: int | None, as_json: bool) -> None:
    """List the hosts, how many URLs they have queued, and when they may be contacted again."""

    async def action(state: OpenState) -> None:
        table = TextTable(
            "host", ">queued", ">in flight", "ready in", "blocked until", "delay", "address", "robots.txt"
        )
        now, left = time.time(), limit or (TOP_HOSTS if sort == "queued" else None)
        found = _largest(state.operations, left or TOP_HOSTS) if sort == "queued" else _hosts(state.operations)
        if paused := (await state.operations.stats()).paused:
            progress.write([f"the crawl is paused and contacts no host: {one_line(paused)}"])
        async for views in found:
            shown = views if left is None else views[:left]
            print_rows(table, shown, lambda view: host_cells(view, now), view_json, as_json=as_json)
            left = left if left is None else left - len(shown)
            if left == 0:
                return

    run(location, action)


@command.command("list")
@crawl_options
@selection_options
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=LIST_LIMIT,
    show_default=True,
    metavar="N",
    help="Maximum URLs; 0 for all.",
)
@json_option
def list_(location: CrawlLocation, limit: int, as_json: bool, **selected: Any) -> None:
    """List URLs with their state, segment by segment.

    \b
    lycosa frontier list --status dead --reason 'timeout*' --limit 0
    """
    selection = selection_of(**selected)

    async def action(state: OpenState) -> None:
        await check_segment(state.operations, selection)
        table, now, left = TextTable("state", "when", "reason", "url", style=0), time.time(), limit
        found = False
        async for rows in slices(state.operations, selection):
            shown = rows[:left] if limit else rows
            print_rows(table, shown, lambda row: row_cells(row, now), row_json, as_json=as_json)
            left -= len(shown)
            found |= bool(rows)
            if limit and len(rows) > len(shown):
                progress.write([f"only the first {limit:,} {'is' if limit == 1 else 'are'} shown: --limit 0 shows all"])
                return
        if not found:
            progress.write(["no URL matches"])

    run(location, action)


@command.command("explain")
@click.argument("url", metavar="URL")
@crawl_options
@json_option
def explain(url: str, location: CrawlLocation, as_json: bool) -> None:
    """Explain why a URL is not fetched, or when it will be.

    \b
    lycosa frontier explain https://example.com/page
    """
    from lycosa.core.url import canonicalize

    canonical = canonicalize(url)

    async def action(state: OpenState) -> None:
        from lycosa.frontier.core.explain import explain as explain_url

        found = await state.look_up(canonical)
        now = time.time()
        lines = [
            f"{spider}: {line}" if spider else line
            for spider, known in found
            for line in explain_url(known, now, lambda at: format_time(at, now))
        ]
        if as_json:
            # Each spider of a crawl has its own rows for this URL, but the host is the same.
            rows, host = [row_json(row) for _, known in found for row in known.rows], found[0][1].host
            print_json({"url": canonical, "why": lines, "rows": rows, "host": host and view_json(host)})
            return
        print_styled(one_line(canonical), "bold")
        for line in lines:
            print(f"  {one_line(line)}")

    run(location, action)


async def _hosts(operations: FrontierOperations) -> AsyncIterator[list[HostView]]:
    views = await operations.hosts("", SLICE)
    while views:
        yield views
        await between_slices()
        views = await operations.hosts(views[-1].host, SLICE)


async def _largest(operations: FrontierOperations, limit: int) -> AsyncIterator[list[HostView]]:
    """Yield the hosts with the most queued URLs. At most `limit` hosts and one slice are held in memory."""
    if limit > TOP_HOSTS:
        raise UsageError(f"--limit is {limit:,}: with --sort queued, give at most {TOP_HOSTS:,}")
    largest: list[HostView] = []
    async for views in _hosts(operations):
        largest = nlargest(limit, [*largest, *views], key=lambda view: (view.queued, view.in_flight))
    if largest:
        yield largest


async def _status(state: OpenState, *, as_json: bool) -> None:
    operations, now = state.operations, time.time()
    stats = await operations.stats()
    rate = None
    if state.runs:  # the rate needs two snapshots, because a running crawl reports only counts
        await asyncio.sleep(RATE_OVER_S)
        later = await operations.stats()
        rate, stats = (later.done - stats.done) / RATE_OVER_S, later
    views = await operations.segments()
    not_started = sum(view.queued for view in views if view.starts_at > now)
    # Idle: only delayed URLs, and the URLs of segments that have not started, are left.
    idle = not (stats.queued > not_started or stats.leased)
    lookups = stats.lookups
    known = {
        "path": state.place,
        "name": state.description.name,
        "spider": state.description.spider,
        "seeds": len(state.description.seeds),
        "running": bool(state.runs),
        "pid": state.pid or None,
        "paused": stats.paused or None,
        "queued": stats.queued,
        "not_started": not_started,
        "leased": stats.leased,
        "delayed": stats.delayed,
        "done": stats.done,
        "dead": stats.dead,
        "reasons": stats.reasons,
        "dead_reasons": stats.dead_reasons,
        "rate": rate,
        "next_due": await operations.next_due(now) if idle else None,
        "segments": dict(Counter(str(view.state) for view in views)),
        "filter_share": stats.lookups_settled / lookups if lookups else None,
        "size_bytes": _size(state.path) if state.path else None,
        "expires_at": state.expires_at,
    }
    if as_json:
        print_json(known)
    else:
        _show_status(known, state.description.seeds, state.runs, now)


def _show_status(known: dict[str, Any], seeds: list[str], runs: str, now: float) -> None:
    if known["spider"]:
        kind = f"spider {known['spider']}"
    else:
        kind = f"{format_count(len(seeds), 'start URL')}" + (f", {seeds[0]}" if seeds else "")
    activity = f"running in {runs}" if runs else "stopped"
    print_styled(one_line(f"{known['path']}: {kind}; {activity}"), "bold")
    due, later = known["next_due"], known["not_started"]
    lines = {
        "paused": known["paused"] or "",
        "queued": f"{known['queued']:,}" + (f", {later:,} of them in segments that have not started" if later else ""),
        "leased": f"{known['leased']:,}" if known["leased"] else "",
        "delayed": f"{known['delayed']:,}",
        "next due": format_time(due, now) if due else "",
        "done": f"{known['done']:,}{progress.format_counts(known['reasons'], REASONS_SHOWN)}",
        "dead": f"{known['dead']:,}{progress.format_counts(known['dead_reasons'], REASONS_SHOWN)}",
        "rate": f"{known['rate']:,.0f} done/s" if known["rate"] is not None else "",
        "segments": ", ".join(f"{number:,} {name}" for name, number in known["segments"].items()),
        "filter": _filter_text(known["filter_share"]),
        "size": format_size(known["size_bytes"]) if known["size_bytes"] is not None else "",
        "expires": format_time(known["expires_at"], now) if known["expires_at"] is not None else "",
    }
    for name, text in lines.items():
        if text:
            print(f"  {name:<9} {text}")


def _filter_text(share: float | None) -> str:
    return "" if share is None else f"answered {share:.2%} of the look-ups without the database"


def _size(folder: Path) -> int:
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.lstat().st_blocks * 512
        except OSError:  # a running crawl removed it in the meantime
            continue
    return total
