"""`lycosa dht crawl`, which runs until SIGINT (exit 130), SIGTERM (exit 0) or a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from shutil import get_terminal_size
from typing import Any, NamedTuple

import click

from lycosa.cli.dht.crawl_report import PlainReport, live_lines, summary_json, summary_lines
from lycosa.cli.dht.options import NodeOptions, join, joined_line, node_options, report, require_contacts, run_with_node
from lycosa.cli.dht.records import rules_option
from lycosa.cli.exit_codes import DONE
from lycosa.cli.parameters import NON_EMPTY, Number, Size
from lycosa.core.errors import IndexTaken, UsageError

PROFILES = ("home", "server")
STATE_HELP = "Folder for the torrents, the queue, the rules, the node id and the contacts. Required."


class CrawlOptions(NamedTuple):
    """The options of a crawl, without those of its node."""

    store: str | None
    index_dir: str | None
    rules: tuple[Path, ...]
    profile: str
    max_size: int | None
    max_time: float | None
    max_torrents: int | None
    metrics: str | None
    page: str | None
    allow_remote: bool
    as_json: bool


@click.command("crawl")
@node_options(is_short=False, state_help=STATE_HELP)
@click.option(
    "--store",
    type=NON_EMPTY,
    metavar="URL",
    help="Database server for the torrents, postgresql://HOST/DATABASE or mysql://HOST/DATABASE. "
    "[default: torrents.sqlite in the folder of --state]",
)
@click.option(
    "--index",
    "index_dir",
    type=NON_EMPTY,
    metavar="DIR",
    help="Index new torrents during the crawl, for `lycosa site --state`. DIR is a folder, or sphinx://HOST:PORT/NAME. "
    "[default: no index]",
)
@click.option(
    "--profile",
    type=click.Choice(PROFILES),
    default=PROFILES[0],
    show_default=True,
    help="Limits of the crawl. home: behind a home router; server: for a machine without NAT.",
)
@rules_option
@click.option(
    "--max-size",
    type=Size(),
    metavar="SIZE",
    help="Maximum size of torrents.sqlite and its write-ahead log, such as 10G. Above it, torrents with the fewest "
    "seeders are removed; with the same number of seeders, those seen least recently go first. Removed torrents are "
    "not stored again for 90 days. [default: no limit]",
)
@click.option("--max-time", type=Number(1), metavar="S", help="Stop after this many seconds. [default: no limit]")
@click.option(
    "--max-torrents",
    type=click.IntRange(1),
    metavar="N",
    help="Stop after this many new torrents; transfers in progress may add a few. [default: no limit]",
)
@click.option(
    "--page",
    type=NON_EMPTY,
    metavar="[ADDR:]PORT",
    help="Serve a page with charts, and metrics; on 127.0.0.1 unless an address is given.",
)
@click.option(
    "--metrics",
    type=NON_EMPTY,
    metavar="[ADDR:]PORT",
    help="Serve Prometheus metrics at /metrics; on 127.0.0.1 unless an address is given.",
)
@click.option(
    "--allow-remote", is_flag=True, help="Allow an address for --page and --metrics that other machines can reach."
)
@click.option("--json", "as_json", is_flag=True, help="Write a summary as JSON to standard output at the end.")
def command(options: NodeOptions, **arguments: Any) -> int:
    """Find torrents in the DHT and store their metadata in the folder of --state. Content is never fetched.

    To resume a crawl, give the same --state. Nothing is announced, and no peer addresses are stored.

    \b
    lycosa dht crawl --bind 0.0.0.0:6881 --bootstrap default --state torrents --page 8090
    """
    chosen = CrawlOptions(**arguments)
    if options.state is None:
        raise UsageError("dht crawl needs a folder for the torrents: --state DIR")
    _check(chosen)
    state = Path(options.state)
    return run_with_node(options, lambda session: _run(session, state, chosen), lambda: _node_settings(chosen))


def _node_settings(options: CrawlOptions) -> dict[str, Any]:
    from lycosa.app.dht_crawl import node_settings

    return node_settings(options.profile)


def _check(options: CrawlOptions) -> None:
    """Check the addresses and the store before anything is opened. Raises `UsageError`, `StateError`."""
    from lycosa.app.dht_state import check_store
    from lycosa.infra.web.small_site import listen

    check_store(options.store, options.max_size)
    with ExitStack() as listeners:
        for option, where in (("--page", options.page), ("--metrics", options.metrics)):
            if where is not None:
                listeners.enter_context(listen(where, option, allow_remote=options.allow_remote))


async def _run(session: Any, state: Path, options: CrawlOptions) -> int:
    from lycosa.app.dht_crawl import open_torrent_crawl, serve_crawl
    from lycosa.app.dht_state import RecordsLocation

    opening = open_torrent_crawl(
        session, state, options.profile, options.store, options.rules, max_bytes=options.max_size, say=report
    )
    require_contacts(session)
    location = RecordsLocation(str(state), options.store)
    async with opening as opened, indexing(opened, location, options.index_dir):
        serving = serve_crawl(
            opened, state.name, metrics=options.metrics, page=options.page, allow_remote=options.allow_remote
        )
        async with serving as lines:
            report(*lines)
            report(joined_line(await join(session)))
            opened.beside.append(lambda: _show(opened.monitor))
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(options.max_time):
                        await opened.run(options.max_torrents)
            finally:
                view = await opened.monitor.end()
                report(*summary_lines(view))
                if options.as_json:
                    click.echo(summary_json(view))
    return DONE


@asynccontextmanager
async def indexing(opened: Any, location: Any, index_dir: str | None) -> AsyncIterator[None]:
    """Index the torrents of an open crawl while the block runs. `location` is the location of its torrents.

    A failure of the index that can end by itself, or that comes later, does not end the crawl.
    """
    if index_dir is None:
        yield
        return
    from lycosa.app.torrent_search import index_follower, torrent_index_place

    place = torrent_index_place(location, index_dir)
    async with index_follower(opened.store, location, place, report) as follower:
        opened.beside.append(partial(_follow, follower))
        try:
            yield
        except asyncio.CancelledError:  # Ctrl-C
            await follower.report_missing()
            raise
        await follower.finish()


async def _follow(follower: Any) -> None:
    try:
        await follower.run()
    except IndexTaken as failure:
        report(f"{failure}. The crawl goes on without its index")


async def _show(monitor: Any) -> None:
    from lycosa.cli.dht.node_report import show_lines
    from lycosa.cli.task_progress import has_terminal

    plain = PlainReport()
    with show_lines() as (every_s, show):
        while True:
            await asyncio.sleep(min(every_s, plain.every_s))
            view = await monitor.look()
            show(live_lines(view, get_terminal_size().columns - 1) if has_terminal() else plain.lines(view))
