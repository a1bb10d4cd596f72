"""A client for contracts: each play has a loop of its own, and a connection lives longer."""

from __future__ import annotations

from typing import Any

import redis


class LooplessClient:
    """What a frontier needs of redis-py's client for asyncio, over the one that blocks."""

    def __init__(self, url: str) -> None:
        self._real = redis.Redis.from_url(url)

    async def execute_command(self, *arguments: Any) -> Any:
        """Run a command."""
        return self._real.execute_command(*arguments)

    async def hget(self, key: str, field: str) -> Any:
        """Return a field."""
        return self._real.hget(key, field)

    async def hgetall(self, key: str) -> Any:
        """Return all fields."""
        return self._real.hgetall(key)

    async def zrange(self, key: str, start: int, end: int) -> Any:
        """Return a part of a sorted set."""
        return self._real.zrange(key, start, end)

    async def info(self, section: str) -> Any:
        """Return what the server says of itself."""
        return self._real.info(section)

    async def memory_purge(self) -> Any:
        """Let it give memory back."""
        return self._real.memory_purge()

    async def aclose(self) -> None:
        """Close."""
        self._real.close()
