"""Repairs inconsistencies between partitions after a failover of one partition's server.

A replica that takes over may lack the last writes: its partition goes back in time a little, and the others do not.
Workers whose calls were lost are refused there, and join again. This module repairs the rest:

- Lost records that came from outboxes of other partitions are delivered again.
- A worker that only other partitions know is expired in the first one, which has lost the join or the expiry of this
  worker.
"""

from __future__ import annotations

from collections.abc import Sequence

from lycosa.frontier.redis.worker.calls import PartitionCalls
from lycosa.frontier.redis.worker.partition import Partition, expired_workers


async def deliver_lost_records(calls: PartitionCalls, partitions: Sequence[Partition]) -> int:
    """Deliver again the records that a partition has lost. Return how many outboxes had such records.

    Raises `StateError`.
    """
    if len(partitions) == 1:
        return 0
    repaired = 0
    outboxes = {each.number: (await calls.run(each, "failover_state"))[1] for each in partitions}
    for target in partitions:
        sources = [
            (number, servers, int(delivered))
            for number, sent in outboxes.items()
            for to, servers, delivered in sent
            if int(to) == target.number
        ]
        arguments = [part for number, servers, _ in sources for part in (number, servers)]
        _, taken = await calls.run(target, "last_taken", len(sources), *arguments)
        for (number, _, delivered), last in zip(sources, taken, strict=True):
            if int(last) < delivered:
                repaired += 1
                await calls.deliver(partitions[number], target, int(last) + 1)
    return repaired


async def expire_unknown_workers(calls: PartitionCalls, partitions: Sequence[Partition]) -> None:
    """Expire, in the first partition, workers that only other partitions know."""
    first, *others = partitions
    known = {worker for each in others for worker in (await calls.run(each, "failover_state"))[2]}
    if known:
        _, expired = await calls.run(first, "expire_unknown", len(known), *sorted(known))
        first.expired = expired_workers(expired)
