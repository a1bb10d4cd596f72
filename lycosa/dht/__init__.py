"""The public names of the BitTorrent DHT, each loaded on first use.

async with dht.open_node(["0.0.0.0:6881"], bootstrap=["default"]) as node:  # lookups, metadata, announces
    async for peer in node.lookup(infohash):
        print(peer)

async for torrent in dht.crawl(["0.0.0.0:6881"], bootstrap=["default"], state="torrents"):
    print(torrent.record.name)
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lycosa.app.dht_crawl import crawl as crawl
    from lycosa.dht.session import DhtSession as DhtSession
    from lycosa.dht.session import open_node as open_node
    from lycosa.storage.core.torrent_record import StoredFile as StoredFile
    from lycosa.storage.core.torrent_record import StoredTorrent as StoredTorrent
    from lycosa.storage.core.torrent_record import TorrentRecord as TorrentRecord

_MODULES = {
    "DhtSession": "lycosa.dht.session",
    "StoredFile": "lycosa.storage.core.torrent_record",
    "StoredTorrent": "lycosa.storage.core.torrent_record",
    "TorrentRecord": "lycosa.storage.core.torrent_record",
    "crawl": "lycosa.app.dht_crawl",
    "open_node": "lycosa.dht.session",
}

__all__ = ["DhtSession", "StoredFile", "StoredTorrent", "TorrentRecord", "crawl", "open_node"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that importing a pure module loads no network code."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
