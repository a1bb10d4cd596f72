"""`lycosa dht stats`."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DONE, one_line
from lycosa.cli.frontier.rows import format_time, json_option, print_json, print_styled
from lycosa.core.units import format_size


@click.command("stats")
@records_options
@json_option
def command(location: Any, *, as_json: bool) -> int:
    """Show what a crawl has stored and queued. The crawl may be running.

    \b
    lycosa dht stats --state torrents
    """
    return asyncio.run(_stats(location, as_json=as_json))


async def _stats(location: Any, *, as_json: bool) -> int:
    from lycosa.app.dht_inspection import open_inspection

    now = time.time()
    async with open_inspection(location, lambda line: progress.write([line])) as inspection:
        found = await inspection.stats(now)
    if as_json:
        print_json(found)
        return DONE
    print_styled(
        one_line(f"{found['state']}: {'running in ' + found['running'] if found['running'] else 'stopped'}"), "bold"
    )
    for name, text in _lines(found, now).items():
        if text:
            print(f"  {name:<11} {text}")
    return DONE


def _lines(found: dict[str, Any], now: float) -> dict[str, str]:
    torrents, size = found["torrents"], found["store_bytes"]
    return {
        "torrents": f"{torrents:,}" + (f", {format_size(size)}, {size / torrents:,.0f} bytes each" if torrents else ""),
        "queued": f"{found['queued']:,}",
        "in progress": f"{found['in_work']:,}" if found["in_work"] else "",
        "later": f"{found['delayed']:,}" + (f", next {format_time(due, now)}" if (due := found["next_due"]) else ""),
        "done": f"{found['done']:,}{progress.format_counts(found['reasons'])}",
        "given up": f"{found['given_up']:,}" if found["given_up"] else "",
        "rate": f"{found['done_per_minute']:,.0f} done/min" if found["done_per_minute"] is not None else "",
    }
