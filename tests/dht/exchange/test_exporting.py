"""The output of an export, also with hostile names."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from lycosa.dht.exchange import exporting
from lycosa.dht.exchange.exporting import ExportFormat, export_torrents
from lycosa.storage.core.torrent_line import CSV_FIELDS, parse_line
from lycosa.storage.core.torrent_record import StoredTorrent
from lycosa.storage.records.memory import MemoryRecordStore
from tests.dht.exchange.torrents import NOW
from tests.storage.torrents import torrent

RECORDS = [replace(torrent(n, 2, v2=n == 3), name=f'{n}, "quoted"\nü') for n in range(5)]


def exported(
    kind: ExportFormat, chosen: Callable[[StoredTorrent], bool] = lambda _: True, denied: Sequence[bytes] = ()
) -> tuple[str, list[int]]:
    """Return the output, and the final numbers of the progress."""
    stream, shown = io.BytesIO(), [0, 0]

    async def main() -> int:
        store = MemoryRecordStore()
        await store.put(RECORDS, NOW)
        await store.deny(denied)
        return await export_torrents(store, stream, kind, chosen, lambda *numbers: shown.__setitem__(slice(2), numbers))

    assert asyncio.run(main()) == shown[0]
    return stream.getvalue().decode(), shown


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exporting, "PAGE_ROWS", 2)


def test_exported_lines_hold_all_records() -> None:
    text, shown = exported(ExportFormat.JSONL)
    assert [parse_line(line.encode(), int(NOW)).record for line in text.splitlines()] == RECORDS
    assert shown == [5, 5]


def test_denied_torrents_are_not_exported() -> None:
    text, shown = exported(ExportFormat.MAGNETS, denied=[RECORDS[1].infohash_v1])
    assert (shown, RECORDS[1].infohash_v1.hex() in text) == ([4, 4], False)


def test_magnet_links_have_no_trackers_and_one_line_each() -> None:
    text, _ = exported(ExportFormat.MAGNETS)
    links = text.splitlines()
    assert len(links) == 5
    assert not any("tr=" in link for link in links)
    assert links[3].count("xt=urn:") == 2


def test_csv_quotes_special_characters_in_names() -> None:
    text, _ = exported(ExportFormat.CSV)
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert list(rows[0]) == list(CSV_FIELDS)
    assert [row["name"] for row in rows] == [record.name for record in RECORDS]
    assert [int(row["size_bytes"]) for row in rows] == [record.size_bytes for record in RECORDS]


def test_only_chosen_torrents_are_written() -> None:
    text, shown = exported(ExportFormat.MAGNETS, lambda torrent: torrent.record.name.startswith("2"))
    assert (len(text.splitlines()), shown) == (1, [1, 5])
    assert exported(ExportFormat.CSV, lambda _: False)[0] == ",".join(CSV_FIELDS) + "\n"
