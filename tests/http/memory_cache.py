"""An HTTP cache in memory, for tests; the least recently used response is evicted first."""

from __future__ import annotations

from lycosa.http.core.cache_rules import StoredResponse

CACHE_BYTES_MAX = 64 << 20


class MemoryCache:
    """The `HttpCacheStore` port in memory: at most `bytes_max` of URLs, header fields and bodies."""

    def __init__(self, bytes_max: int = CACHE_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._stored: dict[str, StoredResponse] = {}
        self._size = 0

    async def get(self, key: str) -> StoredResponse | None:
        stored = self._stored.pop(key, None)
        if stored is not None:
            self._stored[key] = stored  # the dict is in order of use
        return stored

    async def put(self, key: str, stored: StoredResponse) -> None:
        await self.delete(key)
        if _size(stored) > self._bytes_max:
            return
        self._stored[key] = stored
        self._size += _size(stored)
        while self._size > self._bytes_max:
            await self.delete(next(iter(self._stored)))

    async def delete(self, key: str) -> None:
        stored = self._stored.pop(key, None)
        if stored is not None:
            self._size -= _size(stored)

    async def close(self) -> None:
        self._stored.clear()
        self._size = 0


def _size(stored: StoredResponse) -> int:
    return len(stored.body) + len(stored.url) + sum(len(name) + len(value) for name, value in stored.headers)
