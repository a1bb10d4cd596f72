"""A blocking Redis client with an async interface: the event loops of contract tests end before a connection does."""

from __future__ import annotations

from typing import Any

from tests.servers.redis_client import redis_client


class LooplessClient:
    """The methods of redis-py's asyncio client that a frontier needs, on top of the blocking client."""

    def __init__(self, url: str) -> None:
        self.blocking = redis_client(url)

    async def execute_command(self, *arguments: Any) -> Any:
        return self.blocking.execute_command(*arguments)

    async def get(self, key: str) -> Any:
        return self.blocking.get(key)

    async def hget(self, key: str, field: str) -> Any:
        return self.blocking.hget(key, field)

    async def hgetall(self, key: str) -> Any:
        return self.blocking.hgetall(key)

    async def zrange(self, key: str, start: int, end: int) -> Any:
        return self.blocking.zrange(key, start, end)

    async def info(self, section: str) -> Any:
        return self.blocking.info(section)

    async def memory_purge(self) -> Any:
        return self.blocking.memory_purge()

    async def aclose(self) -> None:
        self.blocking.close()
