"""A node of the BitTorrent DHT: `async with lycosa.dht.open_node(...) as node`. See `lycosa.dht.session`."""

from lycosa.dht.session import DhtSession, open_node

__all__ = ["DhtSession", "open_node"]
