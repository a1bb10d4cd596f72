"""`lycosa dht allow`."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DONE
from lycosa.core.units import format_count


@click.command("allow", short_help="Allow denied torrents to be stored again.")
@click.argument("infohashes", nargs=-1, required=True, metavar="FILE|INFOHASH...")
@records_options
@click.option(
    "--hashed", is_flag=True, help="Entries are SHA-256 hashes of infohashes, as for `lycosa dht deny --hashed`."
)
def command(infohashes: tuple[str, ...], location: Any, *, hashed: bool) -> int:
    """Allow torrents that were denied, or removed by --max-size, to be stored again. They are not restored, but can be
    found again.

    FILE has an infohash or a magnet link per line, or the output of `lycosa dht rules apply`. If an infohash is done
    in the queue of a crawl, the crawl does not fetch it again. To queue it again: `lycosa frontier requeue --done --url
    'dht:INFOHASH' --state DIR/queue`.

    \b
    lycosa dht allow 0123456789abcdef0123456789abcdef01234567 --state torrents
    """
    from lycosa.app.dht_rules import change_denied, read_infohashes

    named = list(read_infohashes(infohashes, hashed=hashed))
    done = asyncio.run(change_denied(location, named, hashed=hashed, allow=True))
    before = f" ({done.unchanged:,} allowed before)" if done.unchanged else ""
    progress.write([f"{format_count(done.changed, 'infohash')} allowed{before}"])
    return DONE
