"""One worker's calls to the partitions of a crawl: each is a script, a round trip; several go at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from lycosa.core.errors import StateError, WorkerLost
from lycosa.frontier.redis.scripts import OPERATIONS_SCRIPT, WORKER_SCRIPT, keys_of
from lycosa.frontier.redis.shielded_calls import heeding
from lycosa.frontier.redis.worker.partition import Partition

Patiently = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]

FORWARDED = 500
"""Records of an outbox that are brought over at a time."""


class Wanted(NamedTuple):
    """How many records are wanted now, and how many ahead."""

    limit: int = 0
    ahead: int = 0

    def share(self, trips: int) -> Wanted:
        """Return what to ask for with each of so many trips."""
        return Wanted(-(-self.limit // trips), -(-self.ahead // trips))


NOTHING = Wanted()


class Asked(NamedTuple):
    """A partition, and what is wanted of it."""

    partition: Partition
    wanted: Wanted | None = None
    """None: what will be wanted next, since the trip is made anyway."""
    always: bool = True
    """Also when nothing waits for it any more."""


class Wire:
    """Calls for one worker. `now` returns the time for the script, "" for that of the server."""

    def __init__(self, client: Any, patiently: Patiently, now: Callable[[], str]) -> None:
        self.client = client
        self.patiently = heeding(patiently)
        self._now = now
        self._exchanging = asyncio.Lock()
        self.added = 0
        """Records that were new."""
        self.wanted: Callable[[], Wanted] = Wanted
        """Says what will be wanted next: a trip that is made anyway asks for it."""
        self.lent: Callable[[Partition, list[Any]], None] = lambda _, __: None
        """Hears what a partition lent."""

    async def run(self, partition: Partition, command: str, *arguments: Any) -> list[Any]:
        """Run a command. Raises `StateError`."""
        now = self._now()
        said: list[Any] = await self.patiently(
            lambda: WORKER_SCRIPT.run_async(
                self.client, keys_of(partition.key), (now, command, partition.worker, *arguments)
            )
        )
        if said[0] == b"unknown":
            raise WorkerLost(f"worker {partition.worker} is not known any more: others go on with its URLs")
        return said

    async def read(self, partition: Partition, command: str, *arguments: Any) -> Any:
        """Run a command of who looks into the crawl. Raises `StateError`."""
        now = self._now()
        return await self.patiently(
            lambda: OPERATIONS_SCRIPT.run_async(self.client, keys_of(partition.key), (now, command, "", *arguments))
        )

    async def outlook(self, partitions: Sequence[Partition]) -> list[Any]:
        """Ask all how they are, as one who looks into the crawl. Raises `StateError`.

        Exchanges wait meanwhile: what is heard last of a partition is never older than what was heard before.
        """
        async with self._exchanging:
            told = await asyncio.gather(*(self.read(each, "outlook") for each in partitions))
            for partition, (_, said, _, _) in zip(partitions, told, strict=True):
                partition.heard(*said)
        return told

    async def exchange(self, asked: Sequence[Asked]) -> dict[Partition, int]:
        """Send what waits for these, and ask each for records. Return how many each of them lent."""
        async with self._exchanging:
            asked = [each for each in asked if each.always or each.partition.waiting]
            extra = sum(each.wanted is None for each in asked)
            soon = self.wanted().share(extra) if extra else NOTHING
            trips = [self._exchange(each.partition, soon if each.wanted is None else each.wanted) for each in asked]
            lent = await asyncio.gather(*trips)
        return {each.partition: number for each, number in zip(asked, lent, strict=True)}

    async def _exchange(self, partition: Partition, wanted: Wanted) -> int:
        partition.serial += 1
        partition.exchanged_at = sent_at = time.monotonic()
        said = await self.run(partition, "exchange", partition.serial, *partition.take(), *wanted)
        _, new, refused, lent, told, turns = said
        partition.heard(*told)
        partition.heard_at = sent_at
        partition.heard_of_turns(turns)
        self.added += new
        if refused:
            raise WorkerLost(f"{len(refused)} leases of {partition.worker} were not its any more")
        self.lent(partition, lent)
        return len(lent)

    async def forward(self, source: Partition, target: Partition, start: int | str = "") -> None:
        """Bring what is in the outbox of one partition to another: what was not brought yet, or from a number on.

        Killed anywhere, somebody else does it again: the target skips numbers that it has. One that has lost some, for
        a replica took over, is brought them again. Raises `StateError` when they are not there any more.
        """
        while True:
            _, server, servers, first, entries = await self.run(source, "outgoing", target.number, FORWARDED, start)
            if not first and (taken := await self._taken(source, target, servers)) >= int(start):
                start = taken + 1  # others were faster, and what they brought is not kept any more
                continue
            if not first:
                where = f"partition {target.number} of the crawl came back without what it was brought"
                raise StateError(f"{where}, and it is not at hand any more: its server lost more than a moment")
            if not entries:
                return
            who = (source.number, server, servers)
            _, last = await self.run(target, "bring", *who, int(first), len(entries), *entries)
            if int(last) >= int(first):
                await self.run(source, "brought", target.number, server, int(last))
            if len(entries) < FORWARDED and int(last) >= int(first):
                return
            start = int(last) + 1

    async def _taken(self, source: Partition, target: Partition, servers: bytes) -> int:
        """Return the number of the last record that the target has of those of the source."""
        _, (last,) = await self.run(target, "taken", 1, source.number, servers)
        return int(last)
