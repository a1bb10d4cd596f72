"""One worker's calls to the partitions of a crawl: each runs a script in one round trip; calls run in parallel."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from lycosa.core.errors import StateError, WorkerLost
from lycosa.frontier.redis.layout import shown_worker
from lycosa.frontier.redis.scripts import OPERATIONS_SCRIPT, WORKER_SCRIPT, keys_of
from lycosa.frontier.redis.shielded_calls import preserve_cancellation
from lycosa.frontier.redis.worker.partition import Partition

Retry = Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]]
"""Makes a call, and repeats it while the server does not answer."""

DELIVERED_AT_ONCE = 500


class LeaseDemand(NamedTuple):
    """`limit` leases are wanted now, and at most `ahead` more in advance, from hosts without a delay or group."""

    limit: int = 0
    ahead: int = 0

    def share(self, calls: int) -> LeaseDemand:
        """Divide the demand among this many calls, rounded up."""
        return LeaseDemand(-(-self.limit // calls), -(-self.ahead // calls))


NO_LEASES = LeaseDemand()


class ExchangeRequest(NamedTuple):
    """A request to a partition for `demand` leases; None: for the worker's next demand.

    With `always` False, it is sent only if verbs still wait for the partition: another exchange may have sent them.
    """

    partition: Partition
    demand: LeaseDemand | None = None
    always: bool = True


class PartitionCalls:
    """The calls of one worker. `now` returns the time for the script, "" for the server's time.

    Exchanges for other purposes, such as a commit, also request the leases of `next_demand`. `on_leases` is called with
    a partition and its new leases.
    """

    def __init__(self, client: Any, retry: Retry, now: Callable[[], str]) -> None:
        self.client = client
        self.retry = preserve_cancellation(retry)
        self._now = now
        self._exchange_lock = asyncio.Lock()
        self.added = 0
        self.next_demand: Callable[[], LeaseDemand] = LeaseDemand
        self.on_leases: Callable[[Partition, list[Any]], None] = lambda _, __: None

    async def run(self, partition: Partition, command: str, *arguments: Any) -> list[Any]:
        """Raises `StateError`, `WorkerLost`."""
        keys, arguments = keys_of(partition.key), (self._now(), command, partition.worker, *arguments)
        reply: list[Any] = await self.retry(lambda: WORKER_SCRIPT.run_async(self.client, keys, arguments))
        if reply[0] == b"unknown":
            worker = shown_worker(partition.worker)
            raise WorkerLost(f"the server no longer knows worker {worker}: other workers take over its URLs")
        return reply

    async def operate(self, partition: Partition, operation: str, *arguments: Any) -> Any:
        """Raises `StateError`."""
        keys, arguments = keys_of(partition.key), (self._now(), operation, "", *arguments)
        return await self.retry(lambda: OPERATIONS_SCRIPT.run_async(self.client, keys, arguments))

    async def status(self, partitions: Sequence[Partition]) -> list[Any]:
        """Update the status of these partitions without being a worker. Return the replies. Raises `StateError`."""
        # The lock keeps a late reply from replacing the status of a newer exchange.
        async with self._exchange_lock:
            replies = await asyncio.gather(*(self.operate(each, "status") for each in partitions))
            for partition, (_, status, _, _) in zip(partitions, replies, strict=True):
                partition.update(*status)
        return replies

    async def exchange(self, requests: Sequence[ExchangeRequest]) -> dict[Partition, int]:
        """Send the verbs that wait for these partitions, and ask each for leases. Return how many each has granted."""
        async with self._exchange_lock:
            requests = [each for each in requests if each.always or each.partition.waiting_verbs]
            open_ended = sum(each.demand is None for each in requests)
            next_demand = self.next_demand().share(open_ended) if open_ended else NO_LEASES
            calls = [
                self._exchange(each.partition, next_demand if each.demand is None else each.demand) for each in requests
            ]
            # Wait for all calls even if one fails: the next exchange must not overtake them.
            results = await asyncio.gather(*calls, return_exceptions=True)
        if errors := [each for each in results if isinstance(each, BaseException)]:
            raise next((each for each in errors if isinstance(each, WorkerLost)), errors[0])
        granted = [each for each in results if not isinstance(each, BaseException)]
        return {request.partition: count for request, count in zip(requests, granted, strict=True)}

    async def _exchange(self, partition: Partition, demand: LeaseDemand) -> int:
        """The verbs stay queued if the server is not the one that they require."""
        partition.serial += 1
        partition.exchanged_at = sent_at = time.monotonic()
        verbs = partition.take_verbs()
        reply = await self.run(partition, "exchange", partition.serial, *verbs, *demand)
        if reply[0] == b"other server":
            partition.refuse_verbs(verbs, reply[1].decode())
            return 0
        _, new, refused, leases, status, start_answers, server = reply
        partition.update(*status)
        partition.answered_at, partition.server = sent_at, server.decode()
        if verbs[0]:
            partition.is_undecided, partition.required_server = False, ""
        partition.update_starts(start_answers)
        self.added += new
        if refused:
            worker = shown_worker(partition.worker)
            raise WorkerLost(f"worker {worker} no longer holds {len(refused)} of its leases")
        self.on_leases(partition, leases)
        return len(leases)

    async def deliver(self, source: Partition, target: Partition, start: int | str = "") -> None:
        """Deliver an outbox: all undelivered records, or those from number `start` on.

        If this worker is killed, another delivers them again: the target skips numbers that it has. Records lost by a
        failover of the target are also delivered again. Raises `StateError` if the source no longer has them.
        """
        while True:
            _, server, servers, first, entries = await self.run(
                source, "read_outbox", target.number, DELIVERED_AT_ONCE, start
            )
            if not first:
                if (taken := await self._last_taken(source, target, servers)) < int(start):
                    lost = f"partition {target.number} of the crawl has lost records that were delivered to it"
                    raise StateError(f"{lost}, and no copy of them is left: its server lost older writes, too")
                start = taken + 1  # other workers were faster, and the records that they delivered were removed
                continue
            if not entries:
                return
            origin = (source.number, server, servers)
            _, last = await self.run(target, "deliver", *origin, int(first), len(entries), *entries)
            if int(last) >= int(first):
                await self.run(source, "delivered", target.number, server, int(last))
                if len(entries) < DELIVERED_AT_ONCE:
                    return
            start = int(last) + 1

    async def _last_taken(self, source: Partition, target: Partition, servers: bytes) -> int:
        """Return the number of the source's last record that the target has."""
        _, (last,) = await self.run(target, "last_taken", 1, source.number, servers)
        return int(last)
