"""Rules applied to stored torrents while more are stored."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from lycosa.app.dht_rules import RuleScan
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import Standing
from lycosa.storage.records.memory import MemoryRecordStore
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
GOOD, BAD, LATE = torrent(1), replace(torrent(2), name="bad"), replace(torrent(3), name="bad")


def test_a_second_run_continues_with_newly_stored_torrents() -> None:
    async def run() -> None:
        store = MemoryRecordStore()
        await store.put([GOOD, BAD], NOW)
        seen: list[str] = []
        scan = RuleScan(
            store,
            lambda record: "bad" * (record.name == "bad"),
            lambda record, _: seen.append(record.keys[0].hex()),
            lambda _refused, _read: None,
            dry_run=False,
            facts=lambda _: ContentFacts(),
        )
        await scan.run()
        await store.put([LATE], NOW)
        await scan.run()
        assert (scan.read, scan.refused, scan.described, seen) == (3, 2, 1, [BAD.keys[0].hex(), LATE.keys[0].hex()])
        assert await store.standing([LATE.keys[0]], NOW) == {LATE.keys[0]: Standing.DENIED}

    asyncio.run(run())
