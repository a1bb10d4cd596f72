"""`lycosa top redis://...`.

On a terminal the command shows a table that refreshes itself; elsewhere, or with --once, one snapshot.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.exit_codes import DONE, one_line
from lycosa.cli.frontier.crawlview import as_json, plain, table
from lycosa.cli.frontier.rows import print_json, report_line
from lycosa.core.errors import StateError, UsageError
from lycosa.frontier.core.telemetry import CrawlView, Rates

EVERY_S = 1.0
RATE_AFTER_S = 1.5
"""Seconds between the two views of --once. In this time every worker reports again, so rates can be calculated."""


@click.command("top")
@click.argument("where", required=False, metavar="[redis://...]")
@click.option("--frontier", metavar="redis://...", help="Server of a shared crawl, instead of the argument.")
@click.option("--crawl-name", metavar="NAME", help="Name of the crawl. [default: the only one on the server]")
@click.option(
    "--state", "state_dir", metavar="DIR", help="State folder of a crawl on this machine, instead of a server."
)
@click.option("--once", is_flag=True, help="Show one snapshot.")
@click.option("--json", "json", is_flag=True, help="Write JSON, one object per second.")
@click.option(
    "--metrics",
    metavar="[ADDRESS:]PORT",
    help="Serve /metrics for Prometheus. If standard output is not a terminal, print no table.",
)
@click.option("--allow-remote", is_flag=True, help="Allow an address for --metrics that other machines can reach.")
def command(
    where: str | None,
    frontier: str | None,
    crawl_name: str | None,
    state_dir: str | None,
    *,
    once: bool,
    json: bool,
    metrics: str | None,
    allow_remote: bool,
) -> int:
    """Watch a crawl that several workers share: its workers and their rates, the remaining URLs, the busiest hosts.

    Ctrl-C stops the display, not the crawl.

    \b
    lycosa top redis://host:6379/0
    lycosa top redis://host:6379/0 --crawl-name shop --json --once
    lycosa top redis://host:6379/0 --crawl-name shop --metrics 9464
    lycosa top --state .lycosa/example.com
    """
    from lycosa.cli.crawl.spiders import enter_project, project_settings

    enter_project()
    settings = project_settings()
    allow_remote = allow_remote or settings.allow_remote
    if state_dir and (where or frontier or crawl_name):
        raise UsageError("--state is for a crawl on this machine, redis://... for a shared one: give one of them")
    where = where or frontier or settings.frontier
    if not state_dir and not where:
        raise UsageError("which crawl? lycosa top redis://host:6379/0, or lycosa top --state DIR")
    opening: AbstractAsyncContextManager[Any]
    if state_dir:
        from lycosa.app.frontier.live_counts import open_live
        from lycosa.app.frontier.operations import find_state

        opening = open_live(find_state(state_dir, Path()), report_line)
    else:
        from lycosa.app.frontier.watching import open_watched

        opening = open_watched(where or "", crawl_name or settings.crawl_name, report_line)
    try:
        asyncio.run(_watch(opening, once=once, json=json, metrics=metrics, allow_remote=allow_remote))
    except KeyboardInterrupt:
        if once:  # without --once, Ctrl-C is the normal way to stop
            raise
    return DONE


async def _watch(
    opening: AbstractAsyncContextManager[Any], *, once: bool, json: bool, metrics: str | None, allow_remote: bool
) -> None:
    async with AsyncExitStack() as stack:
        crawl = await stack.enter_async_context(opening)
        if metrics is not None:
            from lycosa.core.metrics import exposition
            from lycosa.frontier.core.crawl_metrics import metrics_of
            from lycosa.infra.web.metrics_page import serve_metrics

            async def scrape() -> bytes:
                return exposition(metrics_of(await _view(crawl)))

            serving = serve_metrics(metrics, scrape, allow_remote=allow_remote)
            address = await stack.enter_async_context(serving)
            progress.write([f"metrics of {one_line(crawl.name)}: {address}"])
        live = _is_terminal() and not once
        if metrics is not None and not (json or live or once):  # serve only metrics, until a signal
            await asyncio.Event().wait()
        if json:
            await _json(crawl, once=once)
        elif live:
            await _live(crawl)
        else:
            view, rates = await _once(crawl)
            print("\n".join(plain(view, rates)))


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


async def _view(crawl: Any) -> CrawlView:
    view: CrawlView | None = await crawl.view()
    if view is None:
        raise StateError(f"the crawl {crawl.name!r} no longer exists")
    return view


async def _once(crawl: Any) -> tuple[CrawlView, Rates]:
    """Return a view, and the rates over the last RATE_AFTER_S."""
    rates = Rates()
    first = await _view(crawl)
    rates.add(first.workers)
    if not first.workers:  # without workers there are no rates to wait for
        return first, rates
    await asyncio.sleep(RATE_AFTER_S)
    view = await _view(crawl)
    rates.add(view.workers)
    return view, rates


async def _views(crawl: Any) -> AsyncIterator[tuple[CrawlView, Rates]]:
    rates = Rates()
    while True:
        started = time.monotonic()
        view = await _view(crawl)
        rates.add(view.workers)
        yield view, rates
        await asyncio.sleep(max(0.0, started + EVERY_S - time.monotonic()))


async def _json(crawl: Any, *, once: bool) -> None:
    if once:
        print_json(as_json(*await _once(crawl)))
        return
    async for view, rates in _views(crawl):
        print_json(as_json(view, rates))
        sys.stdout.flush()  # a reader of the pipe needs each line at once


async def _live(crawl: Any) -> None:
    """Draw on an alternate screen. rich obeys NO_COLOR."""
    from rich.console import Console
    from rich.live import Live

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        async for view, rates in _views(crawl):
            live.update(table(view, rates, console.width, console.height), refresh=True)
