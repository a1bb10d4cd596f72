"""A key store in memory, for tests."""

from __future__ import annotations

from collections.abc import Iterator


class MemoryKeyStore:
    """See `storage.ports.KeyStore`."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, bytes]] = {}

    def get(self, table: str, key: str) -> bytes | None:
        return self._tables.get(table, {}).get(key)

    def put(self, table: str, key: str, value: bytes | None) -> None:
        if value is None:
            self._tables.get(table, {}).pop(key, None)
        else:
            self._tables.setdefault(table, {})[key] = value

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        return iter(sorted(self._tables.get(table, {}).items()))

    async def flush(self) -> None:
        """Do nothing."""

    async def close(self) -> None:
        """Keep everything: the store may be opened again in this process."""
