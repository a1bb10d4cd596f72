"""How much memory the servers of a crawl use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lycosa.frontier.redis.worker.session import Session
from lycosa.infra.redis.clients import all_masters
from lycosa.infra.redis.server import info_of_nodes


async def used(session: Session) -> int:
    """Return the bytes that the servers have of their systems, for whatever they keep."""
    client = session.wire.client
    info: Mapping[str, Any] = await session.wire.patiently(lambda: client.info("memory", **all_masters(client)))
    return sum(int(node.get("used_memory_rss", 0)) for node in info_of_nodes(info))


async def compacted(session: Session) -> tuple[int, int]:
    """Let them give back what they do not need. Return the bytes before and after."""
    before = await used(session)
    client = session.wire.client
    await session.wire.patiently(lambda: client.memory_purge(**all_masters(client)))
    return before, min(before, await used(session))  # a crawl that goes on may need more meanwhile
