"""The memory of the servers of a crawl."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lycosa.frontier.redis.worker.session import Session
from lycosa.infra.redis.clients import all_masters
from lycosa.infra.redis.server import info_of_nodes


async def used_memory(session: Session) -> int:
    """Return the resident memory of all servers in bytes, including data of other crawls and programs."""
    client = session.calls.client
    info: Mapping[str, Any] = await session.calls.retry(lambda: client.info("memory", **all_masters(client)))
    return sum(int(node.get("used_memory_rss", 0)) for node in info_of_nodes(info))


async def purge_memory(session: Session) -> tuple[int, int]:
    """Let the servers return unused memory to the operating system. Return the used bytes before and after."""
    before = await used_memory(session)
    client = session.calls.client
    await session.calls.retry(lambda: client.memory_purge(**all_masters(client)))
    return before, min(before, await used_memory(session))  # a running crawl may have used more meanwhile
