"""Waits until replicas have what was written, so that it survives a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from lycosa.frontier.redis.worker.partition import Partition
from lycosa.infra.redis.driver import driver_errors

REPLICATED_MAX_S = 1.0
"""A replica that is so far behind is not waited for any longer."""


class Replicas:
    """As many as are `wanted`; `client` blocks. That there are fewer is said once."""

    def __init__(self, client: Any, wanted: int, say: Callable[[str], None]) -> None:
        self._client = client
        self._wanted = wanted
        self._say = say
        self._told = False

    async def have(self, partitions: Collection[Partition]) -> None:
        """Return when the replicas of these partitions have all that was written there, or after a while."""
        counts = await asyncio.gather(*(asyncio.to_thread(self._count, each.key) for each in partitions))
        few = min(counts, default=self._wanted)
        if few < self._wanted and not self._told:
            self._told = True
            self._say(f"{few} of {self._wanted} replicas have a commit after {REPLICATED_MAX_S:g} s; the crawl goes on")

    def _count(self, key: str) -> int:
        """Ask on one connection: a server knows for each what was written before."""
        client = self._client
        try:
            if hasattr(client, "get_node_from_key"):
                client = client.get_redis_connection(client.get_node_from_key(key))
            with client.pipeline(transaction=False) as asked:
                asked.execute_command("HINCRBY", f"{key}m", "waits", 1)
                asked.execute_command("WAIT", self._wanted, int(REPLICATED_MAX_S * 1000))
                written, count = asked.execute(raise_on_error=False)
                return int(count) if isinstance(written, int) else 0
        except driver_errors():
            return 0  # whoever asks next hears of it
