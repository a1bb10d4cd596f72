"""A key store in memory, for tests and for crawls without a state: gone with the process."""

from __future__ import annotations

from collections.abc import Iterator


class MemoryRecords:
    """See `storage.ports.KeyStore`."""

    def __init__(self) -> None:
        self._tables: dict[str, dict[str, bytes]] = {}

    def get(self, table: str, key: str) -> bytes | None:
        """Return the value, or None."""
        return self._tables.get(table, {}).get(key)

    def put(self, table: str, key: str, value: bytes | None) -> None:
        """Keep a value; None forgets the key."""
        if value is None:
            self._tables.get(table, {}).pop(key, None)
        else:
            self._tables.setdefault(table, {})[key] = value

    def items(self, table: str) -> Iterator[tuple[str, bytes]]:
        """Return the keys of a table and their values, in the order of the keys."""
        return iter(sorted(self._tables.get(table, {}).items()))

    async def flush(self) -> None:
        """There is nothing more durable than this memory."""

    async def close(self) -> None:
        """Nothing to release: what is opened again in this process has everything."""
