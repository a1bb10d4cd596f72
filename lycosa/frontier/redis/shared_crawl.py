"""What is stored of a crawl in Redis besides its records: see `frontier.ports.SharedCrawl`."""

from __future__ import annotations

import msgspec

from lycosa.core.errors import NewerState
from lycosa.frontier.core.description import Description
from lycosa.frontier.redis.worker.session import Session


class RedisCrawl:
    """See `frontier.ports.SharedCrawl`; every method here is documented there. The session need not have joined."""

    def __init__(self, session: Session) -> None:
        self._session = session

    async def workers(self) -> int:
        """Count them."""
        return (await self._session.outlook()).workers

    async def description(self) -> Description:
        """Read it."""
        session, first = self._session, self._session.partitions[0]
        text = await session.ask("hget", first, "m", "described")
        seeds = await session.ask("zrange", first, "sd", 0, -1)
        if not text:
            return Description()
        try:
            described = msgspec.json.decode(text, type=Description)
        except msgspec.MsgspecError as error:
            message = f"the crawl {session.crawl!r} is described in a way that is not known here: {error}"
            raise NewerState(message) from None
        return msgspec.structs.replace(described, seeds=[seed.decode() for seed in seeds])

    async def describe(self, description: Description, *, begins: bool = False) -> None:
        """Write it."""
        session, seeds = self._session, description.seeds
        text = msgspec.json.encode(msgspec.structs.replace(description, seeds=[]))
        await session.read(session.partitions[0], "describe", int(begins), text, len(seeds), *seeds)
