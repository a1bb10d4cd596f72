"""Stores the last proxy of each session in the crawl's key store: the session's cookies are bound to that proxy."""

from __future__ import annotations

import msgspec

from lycosa.storage.ports import KeyStore

TABLE = "proxy_sessions"
"""The table of the key store: target and session, as JSON -> key of a proxy."""


class SessionProxies:
    """The proxies of all sessions of a crawl. Raises `StorageError`."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store

    def changes(self, target: str, session: str, proxy: str) -> bool:
        """Store the proxy of a session. Return whether the session had another proxy before."""
        name = msgspec.json.encode((target, session)).decode()
        before = self._store.get(TABLE, name)
        if before == proxy.encode():
            return False
        self._store.put(TABLE, name, proxy.encode())
        return before is not None
