"""Two-phase commits of one worker: prepared in each partition that has acked records, decided in the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping

from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.replicas import Replicas
from lycosa.frontier.redis.worker.calls import NO_LEASES, ExchangeRequest
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session


class Commits:
    """`member` stores the first positions of the sinks. A commit waits for `replicas`."""

    def __init__(self, session: Session) -> None:
        self.replicas: Replicas | None = None
        self.member: Membership | None = None
        self._session = session
        self._number = 0
        self._lock = asyncio.Lock()
        self._error: Exception | None = None
        """Why a commit failed: some partitions may have prepared it, so no further commit may be decided."""

    async def commit(self, positions: Mapping[str, int]) -> None:
        """Make the acks final, together with the positions of the sinks.

        The commit is completed even if the caller is cancelled, because the next one relies on the decision about this
        one. After a first cancellation the caller waits for it: later acks must not be in this commit. Raises the error
        of a commit that failed before.
        """
        await self._session.shielded.to_the_end(self._commit_after_others(positions))

    async def _commit_after_others(self, positions: Mapping[str, int]) -> None:
        async with self._lock:
            if self._error is not None:
                raise self._error
            try:
                await self._commit(positions)
            except Exception as error:
                self._error = error
                raise

    async def _commit(self, positions: Mapping[str, int]) -> None:
        self._number += 1
        if self.member is not None and positions and not self.member.starts:
            self.member.starts = dict(positions)
            self.member.changed()
        first, *others = self._session.partitions
        server = first.server
        # The first commit is prepared in all partitions, to replace stored positions of another output.
        prepared = [partition for partition in others if partition.has_acked or (self._number == 1 and positions)]
        worker = self._session.worker
        fields = [part for name, position in positions.items() for part in (f"{worker}/{name}", position)]
        for partition in prepared:
            partition.has_acked = False
            partition.add("prepare", self._number, len(positions), *fields)
        if prepared:
            await self._session.exchange([ExchangeRequest(partition) for partition in prepared])
        await self.wait_for_replicas(prepared)
        first.add("commit", self._number, len(positions), *fields)
        if prepared:  # a server that has restarted since may have lost what it prepared
            first.required_server, first.is_undecided = server, True
        # Call `exchange` even if the commit is no longer queued: another task's exchange may have taken it and failed.
        await self._session.exchange([ExchangeRequest(first)])
        while first.is_undecided:  # the first partition has moved, or its server has restarted
            # A partition that has lost what it prepared raises `WorkerLost`.
            server = first.server
            await self._session.exchange([ExchangeRequest(partition, NO_LEASES) for partition in others])
            first.required_server = server
            await self._session.exchange([ExchangeRequest(first)])
        await self.wait_for_replicas([first])
        for partition in prepared:
            partition.add("commit_prepared")

    async def wait_for_replicas(self, partitions: Collection[Partition]) -> None:
        """Raises `WorkerLost` if a replica without these writes took over: the commit must not continue then."""
        if self.replicas is not None:
            await self.replicas.wait(partitions)
            await self._session.exchange([ExchangeRequest(partition, NO_LEASES) for partition in partitions])

    async def positions(self) -> dict[str, int]:
        """Return the highest position that any partition stores for each of our sinks.

        A replica that took over the first partition may lack a commit that other partitions store. The pages of this
        commit in the first partition are fetched again, although their items are in the output: duplicates are better
        than losses. If no partition stores a position, all commits of this worker are lost, and the sinks resume at
        their first positions.
        """
        last: dict[str, int] = {}
        prefix = f"{self._session.worker}/".encode()
        for partition in self._session.partitions:
            for field, position in (await self._session.query("hgetall", partition, Key.POSITIONS)).items():
                if field.startswith(prefix):
                    name = field.removeprefix(prefix).decode()
                    last[name] = max(last.get(name, 0), int(position))
        return last or dict(self.member.starts if self.member is not None else {})
