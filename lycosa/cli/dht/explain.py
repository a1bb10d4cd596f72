"""`lycosa dht explain`."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.options import parse_infohashes
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DEAD, DONE, one_line
from lycosa.cli.frontier.rows import format_time, json_option, print_json, print_styled


@click.command("explain")
@click.argument("infohash")
@records_options
@json_option
def command(infohash: str, location: Any, *, as_json: bool) -> int:
    """Explain whether a torrent is in the store of a crawl, and if not, why not. The crawl may be running.

    INFOHASH is an infohash in hexadecimal or base32, or a magnet link. The exit code is 0 if the torrent is stored,
    else 1.

    \b
    lycosa dht explain 0123456789abcdef0123456789abcdef01234567 --state torrents
    """
    return asyncio.run(_explain(parse_infohashes(infohash), location, as_json=as_json))


async def _explain(infohashes: tuple[bytes, ...], location: Any, *, as_json: bool) -> int:
    from lycosa.app.dht_inspection import open_inspection

    is_stored = False
    async with open_inspection(location, lambda line: progress.write([line])) as inspection:
        for infohash in infohashes:
            now = time.time()
            found = await inspection.explain(infohash, now, partial(format_time, now=now))
            is_stored |= found.values["stored"] is not None
            if as_json:
                print_json({**found.values, "why": found.lines})
                continue
            print_styled(infohash.hex(), "bold")
            for line in found.lines:
                print(f"  {one_line(line)}")
    return DONE if is_stored else DEAD
