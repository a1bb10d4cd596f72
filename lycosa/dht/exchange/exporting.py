"""Writes the torrents of a record store as lines of JSON, magnet links, or CSV.

It cannot write torrent files: they need the hashes of all pieces, which the store does not keep.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Sequence
from enum import StrEnum
from typing import BinaryIO

from lycosa.storage.core.torrent_line import CSV_FIELDS, csv_row, format_line, magnet_link
from lycosa.storage.core.torrent_record import StoredTorrent
from lycosa.storage.ports import RecordStore

PAGE_ROWS = 500


class ExportFormat(StrEnum):
    """The formats. Each value is the suffix of its files."""

    JSONL = "jsonl"
    MAGNETS = "magnets"
    CSV = "csv"


async def export_torrents(
    store: RecordStore,
    stream: BinaryIO,
    kind: ExportFormat,
    chosen: Callable[[StoredTorrent], bool],
    show: Callable[[int, int], None],
) -> int:
    """Write the chosen torrents in the order of their ids. Return their number.

    `show` gets the numbers of torrents written and read. Torrents that are stored meanwhile are written, too.
    """
    written = read = 0
    write = WRITERS[kind]
    stream.write(write([]))
    async for page in _pages(store):
        rows = [row for row in page if chosen(row)]
        if rows:
            stream.write(write(rows))
        written += len(rows)
        read += len(page)
        show(written, read)
    return written


async def _pages(store: RecordStore) -> AsyncIterator[list[StoredTorrent]]:
    after = 0
    while page := await store.torrents(after, PAGE_ROWS):
        yield page
        after = page[-1].id


def _json_lines(rows: Sequence[StoredTorrent]) -> bytes:
    return b"".join([format_line(row) + b"\n" for row in rows])


def _magnet_links(rows: Sequence[StoredTorrent]) -> bytes:
    return "".join([magnet_link(row.record) + "\n" for row in rows]).encode()


def _csv_rows(rows: Sequence[StoredTorrent]) -> bytes:
    """Return the rows as CSV; the header if there are no rows."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([csv_row(row) for row in rows] or [CSV_FIELDS])
    return text.getvalue().encode()


WRITERS: dict[ExportFormat, Callable[[Sequence[StoredTorrent]], bytes]] = {
    ExportFormat.JSONL: _json_lines,
    ExportFormat.MAGNETS: _magnet_links,
    ExportFormat.CSV: _csv_rows,
}
