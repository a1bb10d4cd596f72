"""`lycosa dht export`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import PurePath
from typing import Any

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options
from lycosa.cli.exit_codes import DONE
from lycosa.cli.frontier.rows import parse_time
from lycosa.cli.task_progress import task_progress
from lycosa.core.errors import UsageError
from lycosa.core.units import format_count
from lycosa.infra.line_files import STREAM, SUFFIXES, new_file
from lycosa.storage.core.content_facts import ContentType

FORMATS = ("jsonl", "magnets", "csv")
TYPES = tuple(each.name.lower() for each in ContentType)


@click.command("export", short_help="Write the stored torrents to a file.")
@click.argument("file", metavar="[FILE|-]", default=STREAM)
@records_options
@click.option(
    "--format", "kind", type=click.Choice(FORMATS), help="Format. [default: by the suffix of FILE, else jsonl]"
)
@click.option("--since", metavar="AGE|TIME", help="Only torrents discovered since this time or age (2026-11-21, 7d).")
@click.option(
    "--type", "types", multiple=True, type=click.Choice(TYPES), help="Only torrents of this type. May be repeated."
)
def command(file: str, location: Any, kind: str | None, since: str | None, types: Sequence[str]) -> int:
    """Write the stored torrents to standard output or a new file. A file that ends in .gz or .zst is compressed.

    \b
    jsonl     a line of JSON per torrent, with all stored data; `lycosa dht import` reads it
    magnets   a magnet link per torrent, without trackers
    csv       a row per torrent, without its list of files

    There is no export of .torrent files: the store lacks their piece hashes. `lycosa dht metadata` fetches a .torrent
    file from the network.

    \b
    lycosa dht export torrents.jsonl.zst --state torrents
    lycosa dht export new.csv --since 7d --store postgresql://me@localhost/lycosa
    """
    suffixes = PurePath(file).suffixes if file != STREAM else []
    packed = suffixes.pop() if suffixes and suffixes[-1] in SUFFIXES else ""
    by_suffix = suffixes[-1].removeprefix(".") if suffixes else ""
    if by_suffix == "torrent":
        raise UsageError("a .torrent file cannot be written: the store does not keep the hashes of pieces")
    kind = kind or (by_suffix if by_suffix in FORMATS else FORMATS[0])
    since_at = parse_time(since, time.time(), "--since") if since else 0.0
    written = asyncio.run(_export(file, packed, location, kind, _selection(since_at, types)))
    progress.write([f"{format_count(written, 'torrent')} exported" + ("" if file == STREAM else f" to {file}")])
    return DONE


def _selection(since: float, types: Sequence[str]) -> Callable[[Any], bool]:
    wanted = {ContentType[name.upper()] for name in types or TYPES}

    def is_wanted(torrent: Any) -> bool:
        record = torrent.record
        kind = ContentType.UNKNOWN if record.content is None else record.content.type
        return kind in wanted and record.discovered >= since

    return is_wanted


async def _export(file: str, packed: str, location: Any, kind: str, is_wanted: Callable[[Any], bool]) -> int:
    from lycosa.app.dht_exchange import ExportFormat, export_torrents, open_records

    async with open_records(location) as store:
        total = await store.count()
        with new_file(file, suffix=packed) as stream, task_progress("torrent", "exported", total) as show:
            return await export_torrents(store, stream, ExportFormat(kind), is_wanted, show)
