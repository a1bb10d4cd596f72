"""Which proxy each session had last, kept with the crawl beside its cookies, which are of no use through another."""

from __future__ import annotations

import msgspec

from lycosa.storage.ports import KeyStore

TABLE = "proxy_sessions"
"""The table of the key store; a key there is a target and a session, as JSON, a value the key of a proxy."""


class SessionProxies:
    """Remembers. Raises `StorageError`."""

    def __init__(self, store: KeyStore) -> None:
        self._store = store

    def changes(self, target: str, session: str, proxy: str) -> bool:
        """Note which proxy a session has now. Return whether it had another one before."""
        name = msgspec.json.encode((target, session)).decode()
        before = self._store.get(TABLE, name)
        if before == proxy.encode():
            return False
        self._store.put(TABLE, name, proxy.encode())
        return before is not None
