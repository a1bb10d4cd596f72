"""One worker's calls to the partitions of a crawl: each is a script, a round trip; several go at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from lycosa.core.errors import StateError, WorkerLost
from lycosa.frontiers.redis.partition import Partition
from lycosa.frontiers.redis.scripts import run

Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]

FORWARDED = 500
"""Records of an outbox that are brought over at a time."""


class Asked(NamedTuple):
    """A partition, how many records are wanted of it now, and how many ahead."""

    partition: Partition
    limit: int = 0
    ahead: int = 0


class Wire:
    """Calls for one worker. `now` returns the time for the script, "" for that of the server."""

    def __init__(self, client: Any, patiently: Patiently, now: Callable[[], str]) -> None:
        self.client = client
        self.patiently = patiently
        self._now = now
        self._exchanging = asyncio.Lock()
        self.trips = 0
        """Round trips so far."""
        self.added = 0
        """Records that were new."""

    async def run(self, partition: Partition, command: str, *arguments: Any) -> list[Any]:
        """Run a command. Raises `StateError`."""
        self.trips += 1
        now = self._now()
        said: list[Any] = await self.patiently(
            lambda: run(self.client, partition.key, now, command, partition.worker, *arguments)
        )
        if said[0] == b"unknown":
            raise WorkerLost(f"worker {partition.worker} is not known any more: others go on with its URLs")
        return said

    async def exchange(self, partitions: Sequence[Asked]) -> dict[Partition, list[Any]]:
        """Send what waits for these, and ask each for records. Return what each of them lent."""
        async with self._exchanging:
            lent = await asyncio.gather(*(self._exchange(each) for each in partitions))
        return {each.partition: records for each, records in zip(partitions, lent, strict=True)}

    async def _exchange(self, asked: Asked) -> list[Any]:
        partition = asked.partition
        partition.serial += 1
        verbs = partition.take()
        said = await self.run(partition, "exchange", partition.serial, *verbs, asked.limit, asked.ahead)
        _, new, refused, lent, told = said
        partition.heard(*told)
        self.added += new
        if refused:
            raise WorkerLost(f"{len(refused)} leases of {partition.worker} were not its any more")
        return lent  # type: ignore[no-any-return]

    async def forward(self, source: Partition, target: Partition) -> None:
        """Bring what is in the outbox of one partition to another.

        Killed anywhere, somebody else does it again: the target skips numbers that it has. One that has lost some, for
        a replica took over, is brought them again. Raises `StateError` when they are not there any more.
        """
        start: int | str = ""
        while True:
            _, server, base, first, entries = await self.run(source, "outgoing", target.number, FORWARDED, start)
            if not first:
                where = f"partition {target.number} of the crawl came back without what it was brought"
                raise StateError(f"{where}, and it is not at hand any more: its server lost more than a moment")
            if not entries:
                return
            name = f"{source.number}|{server.decode()}"
            _, last = await self.run(target, "bring", name, int(base), int(first), len(entries), *entries)
            if int(last) >= int(first):
                await self.run(source, "brought", target.number, int(last))
            start = int(last) + 1
