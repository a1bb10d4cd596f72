"""The torrent site on a real server, over a store with hostile and ordinary torrents."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lycosa.search.core.schema import TORRENTS
from lycosa.search.site.torrents.admin.parts import AdminParts
from lycosa.search.site.torrents.app import build_torrent_site
from lycosa.search.speller import Speller
from lycosa.search.tantivy import TantivyIndex
from lycosa.search.torrent_indexer import TorrentIndexer
from lycosa.search.torrents import TorrentSearch
from lycosa.search.word_list import WordCounter, WordList
from lycosa.storage.core.content_facts import ContentFacts, ContentType
from lycosa.storage.core.torrent_record import Popularity, StoredFile, TorrentRecord
from lycosa.storage.ports import RecordStore
from lycosa.storage.records.sqlite import SqliteRecordStore
from tests.servers.web_server import Server, running
from tests.storage.torrents import torrent

NOW = 1_795_000_000.0
DAY = 1_793_836_800
"""2026-11-05."""


def sample(number: int, name: str, *files: str, **facts: Any) -> TorrentRecord:
    """Return a torrent of 1 GB in files of one size."""
    listed = tuple(StoredFile(file, 10**9 // len(files)) for file in files)
    content = ContentFacts(**facts) if facts else None
    return replace(torrent(number), name=name, files=listed, discovered=DAY + number, content=content)


VIDEO = {"type": ContentType.VIDEO, "category": 5040, "languages": ("en",), "resolution": 1080}
SAMPLES = [
    sample(1, "Great.Show.S01E01.1080p.x264", "Great.Show.S01E01.mkv", season=1, episode=1, **VIDEO),
    sample(2, "Great.Show.S01E02.2160p.HEVC", "Great.Show.S01E02.mkv", "subs/en.srt", season=1, episode=2, **VIDEO),
    sample(3, "英雄传 全集", "英雄传/第一集.mp4", type=ContentType.VIDEO, category=5000, languages=("zh",)),
    sample(4, "Trap <img src=x onerror=alert(1)>", "<script>alert(2)</script>/a&b.txt", "needle.pdf"),
    sample(5, "=cmd()|'x'!A0 \x01control", "a.txt", type=ContentType.TEXT, category=7020),
    *(sample(100 + n, f"Common album {n}", "track.flac", type=ContentType.AUDIO, category=3040) for n in range(45)),
]
HASHES = [record.infohash_v1.hex() for record in SAMPLES]


class TorrentSite(NamedTuple):
    """A running site, and its store."""

    server: Server
    store: SqliteRecordStore
    run: Any
    """Runs a coroutine in the loop of the store."""


@contextmanager
def torrent_site(
    path: Path, admin: Callable[[RecordStore], AdminParts] | None = None, **options: Any
) -> Iterator[TorrentSite]:
    """Serve the site over the samples."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    store = SqliteRecordStore(path / "torrents.sqlite")
    try:
        with closing(TantivyIndex(path / "index", TORRENTS, write=True)) as index:
            run(_fill(store, index, path / "index"))
            search = TorrentSearch(index, store, lambda: NOW, Speller(WordList(path / "index")))
            site = build_torrent_site(search, title="Spiders & co", admin=admin and admin(store), **options)
            with running(site, lifespan="off") as server:
                yield TorrentSite(server, store, run)
            run(store.close())
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _fill(store: SqliteRecordStore, index: TantivyIndex, folder: Path) -> None:
    await store.open()
    await store.put(SAMPLES, NOW)
    await store.set_popularity([Popularity(SAMPLES[0].infohash_v1, 12, 3, int(NOW))])
    with closing(WordCounter(folder, TORRENTS)) as words:
        await TorrentIndexer(index, store, words).catch_up()
