"""The last proxy of each session, stored with the crawl next to its cookies, which another proxy cannot use."""

from __future__ import annotations

import msgspec

from lycosa.storage.ports import KeyStore

TABLE = "proxy_sessions"
"""A table of the key store: from target and session, as JSON, to the key of a proxy."""


class SessionProxies:
    """Raises `StorageError`."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store

    def changes(self, target: str, session: str, proxy: str) -> bool:
        """Store the proxy of a session. Return whether it had another one before."""
        name = msgspec.json.encode((target, session)).decode()
        before = self._store.get(TABLE, name)
        if before == proxy.encode():
            return False
        self._store.put(TABLE, name, proxy.encode())
        return before is not None
