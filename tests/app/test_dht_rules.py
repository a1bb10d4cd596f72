"""Rules applied to stored torrents while more are stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.app import dht_rules
from lycosa.app.dht_exchange import open_import
from lycosa.app.dht_rules import RuleScan, scan_installed
from lycosa.app.dht_state import RecordsLocation
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import Standing
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
GOOD, BAD, LATE = torrent(1), replace(torrent(2), name="bad"), replace(torrent(3), name="bad")


def scan_of(store: MemoryRecordStore, seen: list[str]) -> RuleScan:
    return RuleScan(
        store,
        lambda record: "bad" * (record.name == "bad"),
        lambda record, _: seen.append(record.keys[0].hex()),
        lambda _refused, _read: None,
        dry_run=False,
        facts=lambda _: ContentFacts(),
    )


def test_a_second_run_continues_with_newly_stored_torrents() -> None:
    async def run() -> None:
        store = MemoryRecordStore()
        await store.put([GOOD, BAD], NOW)
        seen: list[str] = []
        scan = scan_of(store, seen)
        await scan.run()
        await store.put([LATE], NOW)
        await scan.run()
        assert (scan.read, scan.refused, scan.described, seen) == (3, 2, 1, [BAD.keys[0].hex(), LATE.keys[0].hex()])
        assert await store.standing([LATE.keys[0]], NOW) == {LATE.keys[0]: Standing.DENIED}

    asyncio.run(run())


def test_new_rules_apply_to_torrents_that_a_running_import_stores_under_the_old_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dht_rules, "LOOK_EVERY_S", 0.1)
    monkeypatch.setattr(dht_rules, "MARGIN_S", 0.2)
    store = MemoryRecordStore()
    seen: list[str] = []

    async def store_late() -> None:
        await asyncio.sleep(0.1)
        await store.put([LATE], NOW)

    async def run() -> None:
        async with open_import(RecordsLocation(str(tmp_path), None), store_private=False, processes=1):
            storing = asyncio.create_task(store_late())
            await scan_installed(scan_of(store, seen), tmp_path)
            await storing

    asyncio.run(run())
    assert seen == [LATE.keys[0].hex()]
