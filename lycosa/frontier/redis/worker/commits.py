"""Commits of one worker, over several partitions: prepared in all that have something, decided in the first."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session
from lycosa.frontier.redis.worker.wire import NOTHING, Asked


class Waits(Protocol):
    """See `frontier.redis.replicas.Replicas`."""

    async def have(self, partitions: Collection[Partition]) -> None:
        """Wait until replicas have what was written to these."""


class Commits:
    """Of one session, whose `member` remembers where the sinks started. With `replicas` a commit waits for them."""

    def __init__(self, session: Session) -> None:
        self.replicas: Waits | None = None
        self.member: Membership | None = None
        self._session = session
        self._number = 0

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make what was acked final, together with the positions of the sinks."""
        self._number += 1
        if self.member is not None and positions and not self.member.starts:
            self.member.starts = dict(positions)
            self.member.changed()
        first, *others = self._session.partitions
        # With the first commit all of them are told where the sinks start: what they knew may be of another output.
        prepared = [partition for partition in others if partition.acked or (self._number == 1 and positions)]
        mine = self._session.worker
        fields = [part for name, position in positions.items() for part in (f"{mine}/{name}", position)]
        for partition in prepared:
            partition.acked = False
            partition.add("p", self._number, len(positions), *fields)
        if prepared:
            await self._session.exchange([Asked(partition) for partition in prepared])
        await self.replicated(prepared)
        first.add("c", self._number, len(positions), *fields)
        await self._session.exchange([Asked(first)])  # also when others took it along: that may have failed
        await self.replicated([first])
        for partition in prepared:
            partition.add("q")

    async def replicated(self, partitions: Collection[Partition]) -> None:
        """Wait until replicas have what was written to these.

        Raises `WorkerLost` when one of them took over before it had that: the commit goes no further then.
        """
        if self.replicas is not None:
            await self.replicas.have(partitions)
            await self._session.exchange([Asked(partition, NOTHING) for partition in partitions])

    async def positions(self) -> dict[str, int]:
        """Return the positions of our sinks: the last that any partition knows.

        A replica that took over the first one may have lost a commit that others know, whose pages are done there.
        Items of its own pages stay in the output then, and their pages are fetched again: better twice than never.
        When none knows any, all that this worker ever did is lost, and the sinks start where they did at first.
        """
        last: dict[str, int] = {}
        mine = f"{self._session.worker}/".encode()
        for partition in self._session.partitions:
            for field, position in (await self._session.ask("hgetall", partition, "p")).items():
                if field.startswith(mine):
                    name = field.removeprefix(mine).decode()
                    last[name] = max(last.get(name, 0), int(position))
        return last or dict(self.member.starts if self.member is not None else {})
