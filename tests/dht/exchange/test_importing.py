"""The outcome of entries: each torrent once, refusals by reason, and the same result after an interruption."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.core.errors import StorageError
from lycosa.dht.core.bencode import encode
from lycosa.dht.core.magnet import parse_magnet
from lycosa.dht.crawler.core.hash_records import POLICY, infohash_of
from lycosa.dht.crawler.queue import HashQueue
from lycosa.dht.exchange.entries import Entry, EntryKind
from lycosa.dht.exchange.importing import BATCH_ROWS, NO_QUEUE, ImportCounts, QueueImporter
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.storage.core.torrent_line import format_line
from lycosa.storage.core.torrent_record import PutResult, RecordPolicy, Standing, StoredTorrent, TorrentRecord
from lycosa.storage.core.torrents.inspection import Inspection
from lycosa.storage.records.memory import MemoryRecordStore
from tests.dht.exchange.torrents import NOW, Imported, info_v1, torrent_file
from tests.storage.rules.records import rules_of
from tests.storage.torrents import torrent

DAY_S = 86_400


class Given:
    """A source with given entries. It may fail at its end."""

    def __init__(self, *entries: Entry, error: Exception | None = None) -> None:
        self.name, self.total = "given", len(entries)
        self._entries, self._error = entries, error

    def entries(self) -> Iterator[Entry]:
        yield from self._entries
        if self._error is not None:
            raise self._error


def line(record: TorrentRecord, where: str = "", **popularity: int) -> Entry:
    return Entry(where, EntryKind.LINE, format_line(StoredTorrent(1, record, 1, **popularity)), 0)


def infohash(record: TorrentRecord) -> Entry:
    return Entry("", EntryKind.INFOHASH, record.keys[0].hex().encode(), 0)


def rows(imported: Imported) -> list[StoredTorrent]:
    return asyncio.run(imported.store.torrents(0, 10_000))


def test_a_repeated_import_stores_nothing_twice() -> None:
    source = Given(*(line(torrent(n % 700)) for n in range(900)))
    imported = Imported().run(source)
    assert (imported.counts.new, imported.counts.known) == (700, 200)
    before = rows(imported)
    imported.run(source)
    assert (imported.counts.new, imported.counts.known) == (700, 200 + 900)
    assert rows(imported) == before


def test_rules_that_change_while_a_batch_is_stored_apply_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = Imported()
    put = imported.store.put

    async def put_slowly(records: Sequence[TorrentRecord], now: float) -> PutResult:
        stored = await put(records, now)
        imported.rules = rules_of(lambda record: Inspection(record, "rule 7" * (record.name == torrent(2).name)))
        return stored

    monkeypatch.setattr(imported.store, "put", put_slowly)
    imported.run(Given(line(torrent(1)), line(torrent(2))))
    assert imported.names() == [torrent(1).name]
    refusal = asyncio.run(imported.store.refusal(torrent(2).keys[0], NOW))
    assert refusal is not None
    assert refusal.reason == "rule 7"


def test_popularity_is_stored_also_when_the_torrent_is_known() -> None:
    imported = Imported().run(Given(line(torrent(1))))
    imported.run(Given(line(torrent(1), seeders=5, leechers=2, counted=1_790_000_000)))
    [row] = rows(imported)
    assert (row.seeders, row.leechers, row.counted) == (5, 2, 1_790_000_000)


def test_an_import_completes_a_known_torrent() -> None:
    imported = Imported().run(Given(line(torrent(1))))
    imported.run(Given(line(replace(torrent(1), comment="from elsewhere", created=5))))
    [row] = rows(imported)
    assert (row.record.comment, row.record.created) == ("from elsewhere", 5)


def test_refusals_are_counted_by_their_reasons() -> None:
    imported = Imported(inspect=lambda record: Inspection(record, "rule 7" if record.name == torrent(4).name else ""))

    async def forbid() -> None:
        await imported.store.put([torrent(2), torrent(3)], NOW)
        await imported.store.deny([torrent(1).infohash_v1, torrent(2).infohash_v1])
        await imported.store.evict(1, NOW)

    asyncio.run(forbid())
    records = [torrent(1), torrent(2), torrent(3), torrent(4), replace(torrent(5), private=True), torrent(6)]
    imported.run(Given(*map(line, records)))
    assert imported.counts.refused == Counter({"denied": 2, "evicted": 1, "rule 7": 1, "private": 1})
    assert (imported.counts.new, imported.counts.total) == (1, 6)
    assert imported.names() == [torrent(6).name]


def test_a_torrent_file_that_a_rule_refuses_is_denied_and_a_line_is_only_left_out() -> None:
    imported = Imported(inspect=lambda record: Inspection(record, "rule 7"))
    asyncio.run(imported.store.put([torrent(1)], NOW))
    file = Entry("a.torrent", EntryKind.TORRENT, torrent_file(info_v1()), 0)
    imported.run(Given(line(replace(torrent(1), comment="x")), line(torrent(2)), file))
    assert imported.counts.refused == Counter({"rule 7": 3})
    infohash_of_file = hashlib.sha1(encode(info_v1())).digest()
    standing = asyncio.run(imported.store.standing([*torrent(1).keys, *torrent(2).keys, infohash_of_file], NOW))
    assert standing == {torrent(1).infohash_v1: Standing.STORED, infohash_of_file: Standing.DENIED}


def test_private_torrents_are_stored_on_request() -> None:
    imported = Imported(RecordPolicy(store_private=True)).run(Given(line(replace(torrent(5), private=True))))
    assert imported.counts.new == 1


def test_a_bad_record_is_reported_and_the_others_are_imported() -> None:
    bad = Entry("line 2", EntryKind.LINE, b"{", 0), Entry("line 3", EntryKind.BAD, b"no use", 0)
    imported = Imported().run(Given(line(torrent(1)), *bad, line(torrent(2))))
    assert imported.counts.new == 2
    assert [(each.where, each.reason) for each in imported.problems] == [
        ("line 2", "Input data was truncated"),
        ("line 3", "no use"),
    ]


@pytest.mark.parametrize("files", ["", ', "files": null'])
def test_a_line_without_files_is_queued_with_all_its_infohashes(files: str) -> None:
    v1, v2 = "ab" * 20, "cd" * 32
    text = f'{{"infohash_v1": "{v1}", "infohash_v2": "{v2}", "name": "film"{files}}}'
    private = text.replace("}", ', "private": true}')
    entries = [Entry("", EntryKind.LINE, each.encode(), 0) for each in (text, private)]
    imported = Imported().run(Given(*entries, line(torrent(1))))
    assert imported.counts == ImportCounts(new=1, queued=1, refused=Counter(private=1))
    [link] = imported.queued
    assert parse_magnet(link.decode()).infohashes == (bytes.fromhex(v1), bytes.fromhex(v2))


def test_entries_read_before_a_source_failed_are_imported() -> None:
    source = Given(*(line(torrent(n)) for n in range(BATCH_ROWS + 1)), error=StorageError("damaged page"))
    imported = Imported().run(source)
    assert (imported.counts.new, imported.counts.bad) == (BATCH_ROWS + 1, 1)
    assert imported.problems[0].reason == "damaged page"


def test_a_store_that_fails_ends_the_import_and_a_repetition_completes_it() -> None:
    imported = Imported()
    put, calls = imported.store.put, iter([False, True])

    async def fail_once(records, now):
        if next(calls, False):
            raise StorageError("the disk is gone")
        return await put(records, now)

    imported.store.put = fail_once
    source = Given(*(line(torrent(n)) for n in range(BATCH_ROWS * 3)))
    with pytest.raises(StorageError, match="the disk is gone"):
        imported.run(source)
    assert len(rows(imported)) in (BATCH_ROWS, 2 * BATCH_ROWS)  # a running batch may have been stored
    imported.run(source)
    assert sorted(imported.names()) == sorted(torrent(n).name for n in range(BATCH_ROWS * 3))


def test_an_infohash_is_queued_unless_it_is_stored_or_denied(tmp_path: Path) -> None:
    stored, denied, queued, new = (torrent(n) for n in range(4))

    async def main() -> None:
        store, frontier = MemoryRecordStore(), embedded_frontier(tmp_path, POLICY, now=NOW)
        queue = HashQueue(frontier, lambda: NOW, lambda: 0.0)
        await store.put([stored], NOW)
        await store.deny(denied.keys)
        await queue.push(queued.keys, 0)
        await queue.commit(77)
        importer = QueueImporter(store, queue, lambda: NOW)
        bad = Entry("line 9", EntryKind.INFOHASH, b"magnet:?dn=\xff", 0)
        result = await importer.take([*map(infohash, (stored, denied, queued, new, new)), bad])
        assert (result.counts.known, result.counts.queued, result.counts.refused) == (3, 1, Counter(denied=1))
        assert [each.where for each in result.problems] == ["line 9"]
        assert await queue.sweep_position() == 77
        leased = {infohash_of(lease.record) for lease in await queue.lease(10)}
        assert leased == {queued.infohash_v1, new.infohash_v1}
        await frontier.close()

    asyncio.run(main())


def test_without_a_state_folder_infohashes_are_counted_and_not_queued() -> None:
    importer = QueueImporter(MemoryRecordStore(), None, lambda: NOW)
    result = asyncio.run(importer.take([infohash(torrent(1))]))
    assert result.counts.refused == Counter({NO_QUEUE: 1})


def test_both_infohashes_of_a_magnet_link_are_queued(tmp_path: Path) -> None:
    hybrid = torrent(1, v2=True)
    link = f"magnet:?xt=urn:btih:{hybrid.infohash_v1.hex()}&xt=urn:btmh:1220{hybrid.infohash_v2.hex()}&dn=ü"

    async def main() -> None:
        frontier = embedded_frontier(tmp_path, POLICY, now=NOW)
        queue = HashQueue(frontier, lambda: NOW, lambda: 0.0)
        importer = QueueImporter(MemoryRecordStore(), queue, lambda: NOW)
        result = await importer.take([Entry("", EntryKind.INFOHASH, link.encode(), 0)])
        assert result.counts.queued == 1
        assert {infohash_of(lease.record) for lease in await queue.lease(10)} == set(hybrid.keys)
        await frontier.close()

    asyncio.run(main())
