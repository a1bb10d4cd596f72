"""`lycosa dht crawl`: find torrents in the DHT and store their metadata, until SIGINT (130), SIGTERM (0) or a time."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from lycosa.cli.dht.crawl_report import RATE_EVERY_S, CrawlRates, progress_line, summary_lines
from lycosa.cli.dht.options import NodeOptions, join, node_options, report, run_with_node
from lycosa.cli.exit_codes import DONE
from lycosa.cli.parameters import Number
from lycosa.core.errors import LycosaError, UsageError


@click.command("crawl")
@node_options(is_short=False)
@click.option(
    "--max-time", "max_time_s", type=Number(1), metavar="S", help="End after this many seconds. Default: no limit."
)
def command(options: NodeOptions, max_time_s: float | None) -> int:
    """Find torrents in the DHT and store their metadata in the folder of --state. Content is never fetched.

    A crawl that is started again with the same folder goes on. Nothing is announced, and no address is stored.

    \b
    lycosa dht crawl --bind 0.0.0.0:6881 --bootstrap default --state torrents
    """
    if options.state is None:
        raise UsageError("dht crawl needs a folder for the torrents: --state DIR")
    state = Path(options.state)
    return run_with_node(options, lambda session: _run(session, state, max_time_s), report_infohashes=True)


async def _run(session: Any, state: Path, max_time_s: float | None) -> int:
    from lycosa.app.dht_crawl import open_torrent_crawl

    async with open_torrent_crawl(session, state) as crawl:
        await join(session)
        rates = CrawlRates()
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max_time_s), asyncio.TaskGroup() as tasks:
                    tasks.create_task(crawl.run())
                    tasks.create_task(_show(crawl, rates))
        except* LycosaError as errors:
            raise _first(errors) from None
        finally:
            report(*summary_lines(await crawl.status(), rates.elapsed_s()))
    return DONE


def _first(errors: BaseExceptionGroup[LycosaError]) -> LycosaError:
    """Return the error that ended the crawl: the others follow from it."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, LycosaError)
    return first


async def _show(crawl: Any, rates: CrawlRates) -> None:
    """Show the progress until cancelled."""
    from lycosa.cli.dht.node_report import show_lines

    with show_lines() as (every_s, show):
        while True:
            await asyncio.sleep(min(every_s, RATE_EVERY_S))
            status = await crawl.status()
            show([progress_line(status, *rates.update(status.funnel))])
