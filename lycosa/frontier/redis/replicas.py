"""Waits until replicas have the last writes, so that these survive a failover."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Any

from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.infra.redis.driver import driver_errors

REPLICATED_MAX_S = 1.0
"""Maximum seconds that a push, or each of the two steps of a commit, waits for slow replicas."""


class Replicas:
    """Waits for `count` replicas. `client` is a blocking client.

    `report` is called only the first time that fewer than `count` replicas answer in time.
    """

    def __init__(self, client: Any, count: int, report: Callable[[str], None]) -> None:
        self._client = client
        self._count = count
        self._report = report
        self._reported = False

    async def wait(self, partitions: Collection[Partition]) -> None:
        counts = await asyncio.gather(*(asyncio.to_thread(self._replicated, each.key) for each in partitions))
        fewest = min(counts, default=self._count)
        if fewest < self._count and not self._reported:
            self._reported = True
            few = f"only {fewest} of {self._count} replicas confirmed a commit within {REPLICATED_MAX_S:g} s"
            self._report(f"{few}; the crawl continues")

    def _replicated(self, prefix: str) -> int:
        client = self._client
        try:
            if hasattr(client, "get_node_from_key"):
                client = client.get_redis_connection(client.get_node_from_key(prefix))
            # WAIT counts the replicas that have the earlier writes of this connection, so a write must precede it.
            with client.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("HINCRBY", prefix + Key.META, "waits", 1)
                pipeline.execute_command("WAIT", self._count, int(REPLICATED_MAX_S * 1000))
                written, count = pipeline.execute(raise_on_error=False)
                return int(count) if isinstance(written, int) else 0
        except driver_errors():
            return 0  # the next call of the worker raises the error
