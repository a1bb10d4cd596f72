"""Archives and drops segments of a crawl in Redis, in all of its partitions.

The pages of a segment may link into other partitions. So all partitions first close the segment: from then on it
accepts only links from its own pages. Then the partitions are read in rounds. If two successive rounds find no work,
and no record has ended between them, no more work can come (see `frontier.core.finish`), and the segment is archived.
If the worker is killed before that, another worker continues.
"""

from __future__ import annotations

import time
from typing import Any

from lycosa.frontier.core.model import SegmentState
from lycosa.frontier.core.segments import is_followed, latest_starts
from lycosa.frontier.redis.admin.counts import stored_states
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.partition import LIVE, Partition
from lycosa.frontier.redis.worker.session import Session

CLEAR_OPERATIONS: dict[str, Any] = {"clear_queued": "", "clear_delayed": 0, "clear_seen": 0}
"""Each operation with its initial cursor."""

RETRY_EVERY_S = 10.0
"""Seconds between two attempts to archive a segment that a run or a new URL still keeps open."""


async def archive(session: Session, segment: str) -> bool:
    """Close a segment, and archive it if it has no work. Return whether it is archived."""
    await session.operate_all("close", segment)
    before = None
    while True:
        found = await session.operate_all("work", segment)
        if any(work for work, _ in found):
            return False
        if found == before or len(session.partitions) == 1:
            return all(await session.operate_all("archive", segment))
        before = found


class SegmentArchiver:
    """Archives finished time segments that are followed by a later segment of the same period."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._archived: set[str] = set()
        self._next_at = 0.0

    async def begin_run(self, now: float) -> None:
        """Keep open the segments into which this run may push. Complete interrupted drops."""
        await _finish_drops(self._session)
        first = self._session.partitions[0]
        first.add("begin_run", repr(now))
        await self._session.send([first])

    async def archive_followed(self) -> None:
        """Archive the segments that had no work when the status was last read."""
        session = self._session
        if time.monotonic() < self._next_at or not self._finished(session.now):
            return
        # A worker may push into the segments that were the latest ones when its run began.
        runs = await session.query("hgetall", session.partitions[0], Key.RUN_STARTS)
        for name in self._finished(min([session.now, *map(float, runs.values())])):
            if await archive(session, name):
                self._archived.add(name)
        if self._finished(session.now):
            self._next_at = time.monotonic() + RETRY_EVERY_S

    def _finished(self, horizon: float) -> list[str]:
        """Return segments without work whose successor of the same period started at `horizon` or before."""
        partitions = self._session.partitions
        if any(partition.counts.get("outgoing") for partition in partitions):
            return []
        names = {name for partition in partitions for name in partition.segments}
        latest = latest_starts(names, horizon)
        followed = [name for name in names - self._archived if is_followed(name, latest)]
        busy = {
            name
            for partition in partitions
            for name in followed
            if any(partition.segments.get(name, {}).get(state) for state in LIVE)
        }
        return [name for name in followed if name not in busy]


async def clear_dropped(session: Session, segment: str) -> None:
    """Delete the stored data of a dropped segment, in steps."""
    for partition in session.partitions:
        await _clear(session, partition, segment)


async def _finish_drops(session: Session) -> None:
    states = [await stored_states(session, partition) for partition in session.partitions]
    dropped = {name for each in states for name, state in each.items() if state == SegmentState.DROPPED}
    for partition, here in zip(session.partitions, states, strict=True):
        seen = {
            field.decode().partition("|")[2] for field in await session.query("hgetall", partition, Key.SEEN_COUNTS)
        }
        for name in dropped:
            if here.get(name) != SegmentState.DROPPED:
                await session.operate(partition, "drop", name)
            elif name not in seen:  # fingerprints are cleared last
                continue
            await _clear(session, partition, name)


async def _clear(session: Session, partition: Partition, segment: str) -> None:
    for operation, first in CLEAR_OPERATIONS.items():
        _, cursor = await session.operate(partition, operation, segment, first)
        while cursor:
            _, cursor = await session.operate(partition, operation, segment, cursor)
