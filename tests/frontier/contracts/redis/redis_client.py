"""A client for contracts: each of their event loops is short, and a connection lives longer."""

from __future__ import annotations

from typing import Any

import redis


class LooplessClient:
    """The methods of redis-py's client for asyncio that a frontier needs, over the blocking client."""

    def __init__(self, url: str) -> None:
        self._real = redis.Redis.from_url(url)

    async def execute_command(self, *arguments: Any) -> Any:
        return self._real.execute_command(*arguments)

    async def get(self, key: str) -> Any:
        return self._real.get(key)

    async def hget(self, key: str, field: str) -> Any:
        return self._real.hget(key, field)

    async def hgetall(self, key: str) -> Any:
        return self._real.hgetall(key)

    async def zrange(self, key: str, start: int, end: int) -> Any:
        return self._real.zrange(key, start, end)

    async def info(self, section: str) -> Any:
        return self._real.info(section)

    async def memory_purge(self) -> Any:
        return self._real.memory_purge()

    async def aclose(self) -> None:
        self._real.close()
