"""The torrent site as `lycosa site` opens it."""

from __future__ import annotations

import asyncio
import time
from contextlib import closing

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import torrent_indexer
from lycosa.app.torrent_site import DAY_S, open_site_store, open_torrent_site
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
DEADLINE_S = 60


def test_takedown_requests_are_deleted_some_days_after_their_decision(tmp_path) -> None:
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def run() -> None:
        async with open_records(location, create=True) as store, torrent_indexer(store, location, folder) as indexer:
            await store.put([torrent(1)], NOW)
            await indexer.catch_up()
        with closing(open_site_store(folder)) as site:
            site.add_takedown(["a" * 40], "old", "", "accepted", time.time() - 3 * DAY_S)
            site.add_takedown(["b" * 40], "young", "", "accepted", time.time() - DAY_S)
            async with open_torrent_site(location, folder, "x", keep_requests_days=2), asyncio.timeout(DEADLINE_S):
                while [each.reason for each in site.takedowns()] != ["young"]:  # noqa: ASYNC110 (another thread)
                    await asyncio.sleep(0.01)

    asyncio.run(run())
