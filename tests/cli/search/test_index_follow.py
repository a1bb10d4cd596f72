"""`lycosa index --follow`: indexing between two reports."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from lycosa.app.dht_state import RecordsLocation, open_records
from lycosa.app.torrent_search import index_follower
from lycosa.cli.search import torrents
from lycosa.search.rebuilds import RebuildRequests
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
DEADLINE_S = 60


def test_a_rebuild_may_take_longer_than_the_time_between_two_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(torrents, "REPORT_S", 0.001)
    location, folder = RecordsLocation(str(tmp_path), None), tmp_path / "index"

    async def main() -> None:
        async with open_records(location, create=True) as store:
            await store.put([torrent(number, files=2) for number in range(20)], NOW)
            async with index_follower(store, location, folder, pytest.fail) as follower:
                await follower.catch_up()
                requests = RebuildRequests(folder)
                requests.ask()
                following = asyncio.ensure_future(torrents._follow(follower, folder))
                async with asyncio.timeout(DEADLINE_S):
                    while requests.is_wanted():  # noqa: ASYNC110 (it is in a file)
                        await asyncio.sleep(0.02)
                following.cancel()
                with suppress(asyncio.CancelledError):
                    await following
        assert (folder / "tantivy.1").is_dir(), "the second generation"

    asyncio.run(main())
