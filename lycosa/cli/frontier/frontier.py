"""`lycosa frontier status | segments | hosts | list | explain`: look into what a crawl has done and has to do.

On a stopped state, through the socket of the crawl that runs on it, or in a frontier that workers share. What changes
something is in `changes`.
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

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import one_line
from lycosa.cli.frontier.changes import MOVES
from lycosa.cli.frontier.rows import (
    SLICE,
    Opened,
    Table,
    Where,
    between_slices,
    counts,
    host_cells,
    json_line,
    json_option,
    print_styled,
    refuse_unknown,
    row_cells,
    row_json,
    run,
    segment_cells,
    selection_of,
    selection_options,
    slices,
    state_option,
    view_json,
    when,
)
from lycosa.core.errors import UsageError
from lycosa.core.units import format_size
from lycosa.frontier.core.model import HostView
from lycosa.frontier.ports import FrontierOperations

RATE_OVER_S = 1.0
"""How long a live crawl is watched to tell its rate."""

LIST_LIMIT = 100
TOP_HOSTS = 1000
"""Hosts kept in memory when they are sorted by what they have queued."""


@click.group("frontier", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Look into the frontier of a crawl, and change what the crawl itself would not.

    Works on a stopped crawl, and on one that runs, through the socket in its state. Without --state it takes the only
    crawl in .lycosa/. With --frontier it looks into a crawl that several workers share, and takes no part in it.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for each in MOVES:
    command.add_command(each)


@command.command("status", short_help="Show what a crawl has done and has to do.")
@state_option
@json_option
def status(where: Where, as_json: bool) -> None:
    """Show what a crawl has done and has to do, and how fast it is."""
    run(where, lambda state: _status(state, as_json=as_json))


@command.command("segments")
@state_option
@json_option
def segments(where: Where, as_json: bool) -> None:
    """List the segments in the order in which they are served."""

    async def story(state: Opened) -> None:
        views = await state.operations.segments()
        if as_json:
            for view in views:
                json_line(view_json(view))
            return
        table = Table("segment", "state", "starts", ">queued", ">leased", ">delayed", ">done", ">dead", style=1)
        now = time.time()
        table.write([segment_cells(view, now) for view in views])

    run(where, story)


@command.command("hosts", short_help="List the hosts.")
@state_option
@click.option("--sort", type=click.Choice(["host", "queued"]), default="host", show_default=True, help="Order.")
@click.option(
    "--limit", type=click.IntRange(0), metavar="N", help=f"At most this many. [default: all; {TOP_HOSTS} by queued]"
)
@json_option
def hosts(where: Where, sort: str, limit: int | None, as_json: bool) -> None:
    """List the hosts: what they have queued, and when they may be asked again."""

    async def story(state: Opened) -> None:
        table = Table("host", ">queued", ">in flight", "ready in", "blocked until", "delay", "address", "robots.txt")
        now, left = time.time(), limit or (TOP_HOSTS if sort == "queued" else None)
        found = _largest(state.operations, left or TOP_HOSTS) if sort == "queued" else _hosts(state.operations)
        if paused := (await state.operations.stats()).paused:
            progress.write([f"the crawl is paused, and asks no host: {one_line(paused)}"])
        async for views in found:
            shown = views if left is None else views[:left]
            if as_json:
                for view in shown:
                    json_line(view_json(view))
            else:
                table.write([host_cells(view, now) for view in shown])
            left = left if left is None else left - len(shown)
            if left == 0:
                return

    run(where, story)


@command.command("list")
@state_option
@selection_options
@click.option("--limit", type=click.IntRange(0), default=LIST_LIMIT, show_default=True, metavar="N", help="0 for all.")
@json_option
def list_(where: Where, limit: int, as_json: bool, **selected: Any) -> None:
    """List URLs with their state, segment by segment.

    \b
    lycosa frontier list --status dead --reason 'timeout*' --limit 0
    """
    selection = selection_of(**selected)

    async def story(state: Opened) -> None:
        await refuse_unknown(state.operations, selection)
        table, now, left = Table("state", "when", "reason", "url", style=0), time.time(), limit
        async for rows in slices(state.operations, selection):
            shown = rows[:left] if limit else rows
            if as_json:
                for row in shown:
                    json_line(row_json(row))
            else:
                table.write([row_cells(row, now) for row in shown])
            left -= len(shown)
            if limit and len(rows) > len(shown):
                progress.write([f"only the first {limit:,} {'is' if limit == 1 else 'are'} shown: --limit 0 shows all"])
                return

    run(where, story)


@command.command("explain")
@click.argument("url", metavar="URL")
@state_option
@json_option
def explain(url: str, where: Where, as_json: bool) -> None:
    """Say why a URL is not fetched, or when it will be.

    \b
    lycosa frontier explain https://example.com/page
    """
    from lycosa.core.url import canonicalize

    canonical = canonicalize(url)

    async def story(state: Opened) -> None:
        from lycosa.frontier.core.explain import explain as told

        each = await state.look_up(canonical)
        now = time.time()
        lines = [
            f"{spider}: {line}" if spider else line
            for spider, known in each
            for line in told(known, now, lambda at: when(at, now))
        ]
        if as_json:
            rows, host = [row_json(row) for _, known in each for row in known.rows], each[0][1].host
            json_line({"url": canonical, "why": lines, "rows": rows, "host": host and view_json(host)})
            return
        print_styled(one_line(canonical), "bold")
        for line in lines:
            print(f"  {one_line(line)}")

    run(where, story)


async def _hosts(operations: FrontierOperations) -> AsyncIterator[list[HostView]]:
    views = await operations.hosts("", SLICE)
    while views:
        yield views
        await between_slices()
        views = await operations.hosts(views[-1].host, SLICE)


async def _largest(operations: FrontierOperations, limit: int) -> AsyncIterator[list[HostView]]:
    """Yield the hosts that have the most queued, never holding more than the limit and a slice."""
    if limit > TOP_HOSTS:
        raise UsageError(f"--limit is {limit:,}: sorted by queued, write at most {TOP_HOSTS:,}")
    largest: list[HostView] = []
    async for views in _hosts(operations):
        largest = nlargest(limit, [*largest, *views], key=lambda view: (view.queued, view.in_flight))
    if largest:
        yield largest


async def _status(state: Opened, *, as_json: bool) -> None:
    operations, now = state.operations, time.time()
    stats = await operations.stats()
    rate = None
    if state.runs:
        await asyncio.sleep(RATE_OVER_S)
        later = await operations.stats()
        rate, stats = (later.done - stats.done) / RATE_OVER_S, later
    views = await operations.segments()
    not_started = sum(view.queued for view in views if view.starts_at > now)
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
    }
    if as_json:
        json_line(known)
    else:
        _show_status(known, state.description.seeds, state.runs, now)


def _show_status(known: dict[str, Any], seeds: list[str], runs: str, now: float) -> None:
    if known["spider"]:
        what = f"spider {known['spider']}"
    else:
        what = f"{progress.count(len(seeds), 'start URL')}" + (f", {seeds[0]}" if seeds else "")
    how = f"running in {runs}" if runs else "stopped"
    print_styled(one_line(f"{known['path']}: {what}; {how}"), "bold")
    due, later = known["next_due"], known["not_started"]
    lines = {
        "paused": known["paused"] or "",
        "queued": f"{known['queued']:,}" + (f", {later:,} of them in segments that have not started" if later else ""),
        "leased": f"{known['leased']:,}" if known["leased"] else "",
        "delayed": f"{known['delayed']:,}",
        "next due": when(due, now) if due else "",
        "done": f"{known['done']:,}{counts(known['reasons'])}",
        "dead": f"{known['dead']:,}{counts(known['dead_reasons'])}",
        "rate": f"{known['rate']:,.0f} done/s" if known["rate"] is not None else "",
        "segments": ", ".join(f"{number:,} {name}" for name, number in known["segments"].items()),
        "filter": f"settled {known['filter_share']:.2%} of the look-ups" if known["filter_share"] is not None else "",
        "size": format_size(known["size_bytes"]) if known["size_bytes"] is not None else "",
    }
    for name, text in lines.items():
        if text:
            print(f"  {name:<9} {text}")


def _size(folder: Path) -> int:
    """Return the bytes that the files of a folder take up on the disk."""
    total = 0
    for file in folder.rglob("*"):
        try:
            total += file.lstat().st_blocks * 512
        except OSError:
            continue
    return total
