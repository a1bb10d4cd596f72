"""Repairs what a failover of one partition's server can tear apart.

A replica that takes over may lack what was written last: its partition goes back by a moment, as a whole, while the
others do not. Workers that had reported something in that moment are refused there, and join again. What remains is
repaired here:

- Records that were delivered there from outboxes of other partitions are delivered again.
- Workers that the first partition does not know any more, while others do, are given up there, too: it has lost that
  they joined, or that they were given up.
"""

from __future__ import annotations

from collections.abc import Sequence

from lycosa.frontier.redis.worker.calls import PartitionCalls
from lycosa.frontier.redis.worker.partition import Partition, expired_workers


async def deliver_lost_records(calls: PartitionCalls, partitions: Sequence[Partition]) -> int:
    """Deliver records again to partitions that have lost them. Return how many had. Raises `StateError`."""
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
    """Let the first partition give up workers that it does not know and others do."""
    first, *others = partitions
    known = {worker for each in others for worker in (await calls.run(each, "failover_state"))[2]}
    if known:
        _, expired = await calls.run(first, "expire_unknown", len(known), *sorted(known))
        first.expired = expired_workers(expired)
