"""`lycosa dht deny`."""

from __future__ import annotations

import asyncio
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DONE
from lycosa.core.units import format_count


@click.command("deny", short_help="Remove torrents, and never store them again.")
@click.argument("infohashes", nargs=-1, required=True, metavar="FILE|INFOHASH...")
@records_options
@click.option(
    "--hashed", is_flag=True, help="Entries are SHA-256 hashes of 20-byte infohashes, which hide the infohashes."
)
@click.option(
    "--reason",
    default="",
    metavar="TEXT",
    help="Reason, which `lycosa dht explain` shows. Without it, an infohash that is denied already keeps its reason.",
)
def command(infohashes: tuple[str, ...], location: Any, reason: str, *, hashed: bool) -> int:
    """Remove torrents, and never store them again. Both infohashes of a hybrid torrent are denied.

    FILE has an infohash or a magnet link per line; # starts a comment. Denied infohashes are neither fetched nor
    imported, not even by a crawl that is already running.

    \b
    lycosa dht deny 0123456789abcdef0123456789abcdef01234567 --state torrents --reason 'notice of 3 May'
    lycosa dht deny list.txt --hashed --state torrents
    """
    from lycosa.app.dht_rules import change_denied, read_infohashes

    named = list(read_infohashes(infohashes, hashed=hashed))
    done = asyncio.run(change_denied(location, named, hashed=hashed, allow=False, reason=reason))
    before = f" ({done.unchanged:,} denied before)" if done.unchanged else ""
    removed = format_count(done.removed, "torrent")
    progress.write([f"{format_count(done.changed, 'infohash')} denied{before}, {removed} removed"])
    return DONE
