"""How much memory the servers of a crawl use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lycosa.frontier.redis.worker.session import Session
from lycosa.infra.redis.clients import all_masters
from lycosa.infra.redis.server import info_of_nodes


async def used_memory(session: Session) -> int:
    """Return the bytes that the servers have of their systems, for whatever they store."""
    client = session.calls.client
    info: Mapping[str, Any] = await session.calls.retry(lambda: client.info("memory", **all_masters(client)))
    return sum(int(node.get("used_memory_rss", 0)) for node in info_of_nodes(info))


async def purge_memory(session: Session) -> tuple[int, int]:
    """Let the servers return unused memory to their systems. Return the bytes before and after."""
    before = await used_memory(session)
    client = session.calls.client
    await session.calls.retry(lambda: client.memory_purge(**all_masters(client)))
    return before, min(before, await used_memory(session))  # a running crawl may need more meanwhile
