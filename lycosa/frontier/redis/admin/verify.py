"""Checks that the data of a crawl in Redis is consistent; `frontier/redis/lua/checking.lua` repairs what it can.

The crawl continues meanwhile. A partition with few hosts is checked in one atomic step. Sums over several steps are
checked twice: the crawl may change them, but a difference that stays the same is a fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lycosa.frontier.redis.admin.counts import segment_states
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session

FAULTS_MAX = 1000

HOSTS_AT_ONCE = 1000
"""Maximum number of hosts that one step checks. A step blocks the server for tens of milliseconds."""


async def find_faults(session: Session, report: Callable[[str], None]) -> list[str]:
    """Return the inconsistencies, one per line. `report` gets the progress."""
    faults: list[str] = []
    for partition in session.partitions:
        where = f"partition {partition.number}: " if len(session.partitions) > 1 else ""
        faults += [where + line for line in await _check_partition(session, partition, report)]
        if len(faults) >= FAULTS_MAX:
            return [*faults[:FAULTS_MAX], "and more"]
    return faults


async def _check_partition(session: Session, partition: Partition, report: Callable[[str], None]) -> list[str]:
    faults, differences = await _check_hosts(session, partition, report)
    if differences:
        more, again = await _check_hosts(session, partition, report)
        faults += more
        for segment, (queued, counted) in again.items():
            if segment in differences and differences[segment][0] - differences[segment][1] == queued - counted:
                faults.append(f"segment {segment!r}: {queued} URLs are queued, but the count is {counted}")
    for segment in await segment_states(session):
        faults += await _check_seen(session, partition, segment, report)
    return faults


async def _check_hosts(
    session: Session, partition: Partition, report: Callable[[str], None]
) -> tuple[list[str], dict[str, tuple[int, int]]]:
    """Return the faults, and the segments whose stored count differs: {segment: (queued URLs, stored count)}."""
    faults: list[str] = []
    queued: dict[str, int] = {}
    host: Any = ""
    steps = 0
    while True:
        _, host, lines, more, sums, counts = await session.operate(partition, "check", host, HOSTS_AT_ONCE)
        faults += [line.decode() for line in lines]
        faults += [f"{more} more faults"] if more else []
        for segment, length in _pairs(sums).items():
            queued[segment] = queued.get(segment, 0) + length
        steps += 1
        if not host:
            break
        report(f"partition {partition.number}: {steps * HOSTS_AT_ONCE:,} hosts")
    if steps == 1:
        return faults, {}  # after a single step, the script has already compared the sums with the counts
    counted = _pairs(counts)
    differences = {
        name: (queued.get(name, 0), count) for name, count in counted.items() if queued.get(name, 0) != count
    }
    return faults, differences


async def _check_seen(session: Session, partition: Partition, segment: str, report: Callable[[str], None]) -> list[str]:
    """Compare the stored fingerprints of a segment with their counter, twice if they differ."""
    differences = []
    for _ in range(2):
        total, after = 0, b"0"
        while after:
            found, after, counted = await session.operate(partition, "check_seen", segment, after)
            total += found
            report(f"segment {segment!r}: {total:,} fingerprints")
        if total == counted:
            return []
        differences.append(total - counted)
    same = differences[0] == differences[1]
    return [f"segment {segment!r}: {total} fingerprints are known, but the count is {counted}"] if same else []


def _pairs(flat: list[Any]) -> Mapping[str, int]:
    return {name.decode(): number for name, number in zip(flat[::2], flat[1::2], strict=True)}
