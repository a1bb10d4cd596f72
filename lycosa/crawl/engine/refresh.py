"""Requeues records of earlier runs: old records, and in a new time segment the URLs of the previous segment.

Each slice of records is committed, so after a kill the next start requeues the rest. URLs keep their validators, so an
unchanged page costs one conditional request.

A new segment takes over every URL of the previous one, even a 404, which may be a page by now. Links would not lead to
all of them, because unchanged pages are not parsed. An unfinished previous segment takes two passes: at the start, and
when the frontier has nothing left. If requests have their own periods, each period takes over its previous segment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from fnmatch import fnmatchcase
from hashlib import blake2b

from msgspec.structs import replace

from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.fetching.robots import UNREACHABLE_REASONS
from lycosa.frontier.core.model import SegmentState, SegmentView, Selection
from lycosa.frontier.core.segments import NONE, period_of, segment_order, starts_at
from lycosa.frontier.core.states import State
from lycosa.frontier.ports import Frontier, FrontierOperations

SLICE = 1000
"""Maximum rows examined between two commits."""

CARRIED = "carried"
"""A key in the frontier's positions. The value is a hash of the name of the latest segment that has taken over all URLs
of the previous one. If segment names have a period, there is one key for each period: `carried:3d`.
"""


async def refresh(operations: FrontierOperations, segments: Sequence[str], before: float, now: float) -> int:
    """Requeue the URLs that became done or dead earlier than `before` (unix seconds). Return how many.

    Their reasons do not matter: robots.txt, scope and depth are checked again when a record is leased.
    """
    moved = 0
    for segment in segments:
        old = Selection(states=(State.DONE, State.DEAD), segment=segment, before=before)
        await expire_unreachable_robots(operations, old, now)
        moved += await _requeue(operations, old, None, now)
    return moved


async def retry_dead(operations: FrontierOperations, segments: Sequence[str], now: float) -> int:
    """Requeue the dead URLs. Return how many.

    If the segments are time segments, only `segments` are searched: `CarryOver` has copied the dead URLs of the
    previous ones into them.
    """
    moved = 0
    for segment in segments if any(map(starts_at, segments)) else [None]:
        dead = Selection(states=(State.DEAD,), segment=segment)
        await expire_unreachable_robots(operations, dead, now)
        moved += await _requeue(operations, dead, None, now)
    return moved


async def expire_unreachable_robots(operations: FrontierOperations, requeued: Selection, now: float) -> None:
    """Expire the robots.txt of hosts with dead URLs in `requeued`, if its last fetch failed."""
    if requeued.states and State.DEAD not in requeued.states:
        return
    dead = replace(requeued, states=(State.DEAD,))
    cursor: str | None = ""
    while cursor is not None:
        rows, cursor = await operations.rows(dead, cursor, SLICE)
        hosts = {row.record.host for row in rows if fnmatchcase(row.reason, UNREACHABLE_REASONS)}
        if hosts:
            await operations.expire_robots(sorted(hosts), now)


class CarryOver:
    """Copies the URLs of the previous time segments into the segments of the run."""

    def __init__(
        self, frontier: Frontier, operations: FrontierOperations, committer: Committer, segments: Sequence[str]
    ) -> None:
        self._frontier = frontier
        self._operations = operations
        self._committer = committer
        self._marks = {segment: _mark(segment) for segment in segments if starts_at(segment)}

    async def more(self, now: float) -> int:
        if not self._marks:
            return 0
        done = await self._frontier.positions()
        left = [segment for segment, mark in self._marks.items() if done.get(_key(segment)) != mark]
        return sum([await self._take_over(segment, now) for segment in left])

    async def _take_over(self, segment: str, now: float) -> int:
        source = _previous(segment, await self._operations.segments())
        moved = 0
        if source is not None:
            rows = Selection(states=(State.DONE, State.DEAD, State.ARCHIVED), segment=source.name)
            moved = await _requeue(self._operations, rows, segment, now)
        if source is None or not (source.queued or source.leased or source.delayed):
            # No mark until the source is finished: a second pass has to take over the URLs that are still queued.
            await self._committer.commit({_key(segment): self._marks[segment]})
        return moved


def _mark(segment: str) -> int:
    return int.from_bytes(blake2b(segment.encode(), digest_size=7).digest())


def _key(segment: str) -> str:
    period = period_of(segment)
    return f"{CARRIED}:{period}" if period else CARRIED


def _previous(segment: str, views: Sequence[SegmentView]) -> SegmentView | None:
    """Return the latest earlier segment of the same period that has URLs, or None.

    The unnamed segment counts as earlier than segments without a period in their names.
    """
    mine, period = segment_order(segment), period_of(segment)
    periods = (period,) if period else (period, NONE)
    return max(
        (
            view
            for view in views
            if segment_order(view.name) < mine and period_of(view.name) in periods
            if view.state is not SegmentState.DROPPED
            if view.queued or view.leased or view.delayed or view.done or view.dead
        ),
        key=lambda view: segment_order(view.name),
        default=None,
    )


async def _requeue(operations: FrontierOperations, selection: Selection, into: str | None, now: float) -> int:
    moved, after = 0, ""
    while True:
        some = await operations.requeue(selection, into, now, after, SLICE)
        await operations.commit()
        await asyncio.sleep(0)  # so that Ctrl-C does not have to wait for the last slice
        moved += some.requeued
        if some.next_cursor is None:
            return moved
        after = some.next_cursor
