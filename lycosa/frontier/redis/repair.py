"""What a failover of one partition's server can have torn apart, found and mended.

A replica that takes over may not have what was written last: its partition goes back to what it was a moment ago, as a
whole, while the others stand. Workers that had said something in that moment are refused there, and take part again.
What is left is mended here:

- Records that were brought there from outboxes of others are brought again.
- Workers that the first partition does not know any more, while others do, are given up there, too: it has lost that
  they joined, or that they were given up.
"""

from __future__ import annotations

from collections.abc import Sequence

from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.wire import Wire


async def bring_again(wire: Wire, partitions: Sequence[Partition]) -> int:
    """Bring what was brought to partitions that have lost it. Return how many had. Raises `StateError`."""
    if len(partitions) == 1:
        return 0
    found = 0
    sent = {each.number: (await wire.run(each, "state"))[1] for each in partitions}
    for target in partitions:
        here = [
            (source, *told) for source, all_of_it in sent.items() for to, *told in all_of_it if int(to) == target.number
        ]
        asked = [part for source, servers, _ in here for part in (source, servers)]
        _, taken = await wire.run(target, "taken", len(here), *asked)
        for (source, _, brought), last in zip(here, taken, strict=True):
            if int(last) < int(brought):
                found += 1
                await wire.forward(partitions[source], target, int(last) + 1)
    return found


async def tell_of_strangers(wire: Wire, partitions: Sequence[Partition]) -> None:
    """Let the first partition give up those workers that it does not know and others do."""
    first, *others = partitions
    known = {worker for each in others for worker in (await wire.run(each, "state"))[2]}
    if known:
        _, gone = await wire.run(first, "strangers", len(known), *sorted(known))
        first.gone = {who.decode(): int(commit) for who, commit in zip(gone[::2], gone[1::2], strict=True)}
