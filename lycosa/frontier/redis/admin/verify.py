"""Whether all that is stored of a crawl in Redis fits together.

`frontier/redis/lua/checking.lua` looks, and repairs what it can.

The crawl goes on meanwhile. A partition with few hosts is looked at in one step, which nothing can disturb. What is
summed up over several steps is looked at twice: only a difference that stays the same is one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lycosa.frontier.redis.admin.counts import segment_states
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session

FAULTS_MAX = 1000
"""Lines that are reported; after so many the rest is of no use."""

HOSTS_AT_ONCE = 1000
"""Hosts that one step looks at: some tens of milliseconds in which the server does nothing else."""


async def faults_of(session: Session, say: Callable[[str], None]) -> list[str]:
    """Return what does not fit together, a line each."""
    found: list[str] = []
    for partition in session.partitions:
        where = f"partition {partition.number}: " if len(session.partitions) > 1 else ""
        found += [where + line for line in await _partition(session, partition, say)]
        if len(found) >= FAULTS_MAX:
            return [*found[:FAULTS_MAX], "and more"]
    return found


async def _partition(session: Session, partition: Partition, say: Callable[[str], None]) -> list[str]:
    found, different = await _counts(session, partition, say)
    if different:
        again, still = await _counts(session, partition, say)
        found += again
        for segment, (length, counted) in still.items():
            if segment in different and different[segment][0] - different[segment][1] == length - counted:
                found.append(f"segment {segment!r}: {length} URLs are queued, and {counted} were counted")
    for segment in await segment_states(session):
        found += await _seen(session, partition, segment, say)
    return found


async def _counts(
    session: Session, partition: Partition, say: Callable[[str], None]
) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Return faults, and the segments of which there is more or less queued than was counted."""
    found: list[str] = []
    queued: dict[str, int] = {}
    after: Any = ""
    steps = 0
    while True:
        _, after, faults, more, sums, counts = await session.read(partition, "check", after, HOSTS_AT_ONCE)
        found += [line.decode() for line in faults]
        found += [f"{more} faults more"] if more else []
        for segment, length in _pairs(sums).items():
            queued[segment] = queued.get(segment, 0) + length
        steps += 1
        if not after:
            break
        say(f"partition {partition.number}: {steps * HOSTS_AT_ONCE:,} hosts")
    if steps == 1:
        return found, {}
    told = _pairs(counts)
    return found, {name: (queued.get(name, 0), told[name]) for name in told if queued.get(name, 0) != told[name]}


async def _seen(session: Session, partition: Partition, segment: str, say: Callable[[str], None]) -> list[str]:
    """Compare the fingerprints of a segment with their number, a second time if that is not right."""
    differences = []
    for _ in range(2):
        total, after = 0, b"0"
        while after:
            found, after, counted = await session.read(partition, "check_seen", segment, after)
            total += found
            say(f"segment {segment!r}: {total:,} fingerprints")
        if total == counted:
            return []
        differences.append(total - counted)
    same = differences[0] == differences[1]
    return [f"segment {segment!r}: {total} fingerprints are known, and {counted} were counted"] if same else []


def _pairs(flat: list[Any]) -> Mapping[str, int]:
    return {name.decode(): number for name, number in zip(flat[::2], flat[1::2], strict=True)}
