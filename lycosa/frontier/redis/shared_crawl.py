"""The description, workers and expiry of a crawl in Redis."""

from __future__ import annotations

import msgspec

from lycosa.core.errors import NewerState
from lycosa.frontier.core.description import Description
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.session import Session


class RedisCrawl:
    """Implements `frontier.ports.SharedCrawl`. The session need not belong to a worker."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def workers(self) -> int:
        return (await self._session.status()).workers

    async def expires_at(self) -> float | None:
        first = self._session.partitions[0]
        at = await self._session.query("hget", first, Key.META, "expires_at")
        return float(at) - first.clock_ahead_s if at else None

    async def description(self) -> Description:
        session, first = self._session, self._session.partitions[0]
        text = await session.query("get", first, Key.DESCRIPTION)
        seeds = await session.query("zrange", first, Key.SEEDS, 0, -1)
        if not text:
            return Description()
        try:
            description = msgspec.json.decode(text, type=Description)
        except msgspec.MsgspecError as error:
            problem = f"this version of Lycosa cannot read the description of the crawl {session.crawl!r}"
            raise NewerState(f"{problem}: {error}") from None
        return msgspec.structs.replace(description, seeds=[seed.decode() for seed in seeds])

    async def describe(self, description: Description, *, keep_existing: bool = False) -> None:
        session, seeds = self._session, description.seeds
        text = msgspec.json.encode(msgspec.structs.replace(description, seeds=[]))
        await session.operate(session.partitions[0], "describe", int(keep_existing), text, len(seeds), *seeds)
