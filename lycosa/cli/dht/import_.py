"""`lycosa dht import`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import click

from lycosa.cli.crawl import progress
from lycosa.cli.dht.records import records_options, rules_option
from lycosa.cli.exit_codes import DEAD, DONE, one_line
from lycosa.cli.frontier.rows import json_option, print_result
from lycosa.cli.task_progress import task_progress
from lycosa.core.units import format_count

BAD_SHOWN = 100
"""Maximum number of unreadable records that are reported one by one. More are only counted."""
PROCESSES_MAX = 32
PROCESSES = min(4, os.cpu_count() or 1)


@click.command("import", short_help="Store torrents from files and from other crawlers' databases.")
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@records_options
@rules_option
@click.option(
    "--private", "store_private", is_flag=True, help="Also store private torrents, which belong to closed trackers."
)
@click.option(
    "--processes",
    type=click.IntRange(1, PROCESSES_MAX),
    default=PROCESSES,
    show_default="one per processor, at most 4",
    metavar="N",
    help="Worker processes that parse and store.",
)
@json_option
def command(
    sources: Sequence[str],
    location: Any,
    rules: tuple[Path, ...],
    processes: int,
    *,
    store_private: bool,
    as_json: bool,
) -> int:
    """Store torrents from files and from other crawlers' databases.

    \b
    SOURCE is
    a text file           lines of JSON from `lycosa dht export`, magnet links or infohashes; also .gz, .zst
    -                     such lines on standard input
    a .torrent file       one torrent
    a folder              all .torrent files in it and its subfolders
    database.sqlite3      the database of magnetico or of its forks
    postgresql://...      a restored database of bitmagnet

    Entries without a list of files, such as magnet links, go into the queue of --state; `lycosa dht crawl` fetches
    them. Rules and deny-lists apply. Unreadable records are reported and skipped; the exit code is then 1. No torrent
    is stored twice, so an interrupted import can be repeated.

    \b
    lycosa dht import torrents.jsonl.zst --state torrents
    lycosa dht import ~/.local/share/magneticod/database.sqlite3 --state torrents
    lycosa dht import postgresql://me@localhost/bitmagnet --store postgresql://me@localhost/lycosa
    """
    from lycosa.app.dht_exchange import find_source

    found = [find_source(written, _open_stdin) for written in sources]
    counts = asyncio.run(_import(found, location, rules, store_private, processes))
    print_result(_fields(counts), _text(counts), as_json=as_json)
    return DEAD if counts.bad else DONE


def _open_stdin() -> BinaryIO:
    # Not sys.stdin: a thread that still reads it when Ctrl-C ends the process would make Python abort.
    return open(0, "rb", closefd=False)


async def _import(
    sources: Sequence[Any], location: Any, rules: tuple[Path, ...], store_private: bool, processes: int
) -> Any:
    from lycosa.app.dht_exchange import ImportCounts, open_import

    counts = ImportCounts()
    async with open_import(location, rules, store_private=store_private, processes=processes) as torrents:
        for source in sources:
            read = ImportCounts()
            with task_progress("torrent", "read", lambda source=source: source.total) as show:  # type: ignore[misc]
                await torrents.run(source, _reporter(source.name, counts, read, show))
    return counts


def _reporter(name: str, counts: Any, read: Any, show: Callable[[int, int], None]) -> Callable[[Any, int], None]:
    def report(result: Any, done: int) -> None:
        shown = counts.bad
        counts.add(result.counts)
        read.add(result.counts)
        problems = result.problems[: max(0, BAD_SHOWN - shown)]
        if problems:
            progress.write([one_line(f"{name}: {each.where}: {each.reason}") for each in problems])
        show(read.total, done)

    return report


def _fields(counts: Any) -> dict[str, Any]:
    return {
        "imported": counts.new,
        "known": counts.known,
        "queued": counts.queued,
        "refused": dict(counts.refused.most_common()),
        "bad": counts.bad,
    }


def _text(counts: Any) -> str:
    text = f"{format_count(counts.new, 'torrent')} imported, {counts.known:,} known already"
    text += f", {counts.queued:,} queued for lycosa dht crawl" if counts.queued else ""
    if counts.refused:
        reasons = ", ".join(f"{count:,} {one_line(reason)}" for reason, count in counts.refused.most_common())
        text += f", {counts.refused.total():,} not stored ({reasons})"
    return text + (f", {counts.bad:,} could not be read" if counts.bad else "")
