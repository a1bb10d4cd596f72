"""A node of the BitTorrent DHT for programs: `async with dht.open_node(...) as node`. Loaded on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lycosa.dht.session import DhtSession as DhtSession
    from lycosa.dht.session import open_node as open_node

__all__ = ["DhtSession", "open_node"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use: the pure parts of this package are also used without sockets."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lycosa.dht import session

    return getattr(session, name)
