"""Opens a DHT node for commands and programs."""

from __future__ import annotations

from lycosa.dht.session import DhtSession, open_node

__all__ = ["DhtSession", "open_node"]
