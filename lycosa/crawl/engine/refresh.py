"""Requeues records of earlier runs: old records, and in a new time segment the URLs of the previous segment.

Both work in slices, each with a commit, and survive a kill: the next start requeues the remaining records. URLs keep
their validators, so an unchanged page costs one conditional request.

A new segment takes over every URL of the previous one, even a 404, which may be a page by now. This is necessary: an
unchanged page is not parsed, so URLs that are linked only there would never be found. If the previous segment is
unfinished, this takes two passes: one at the start, and one when the frontier has nothing left.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from msgspec.structs import replace

from lycosa.crawl.engine.commit import Committer
from lycosa.crawl.fetching.robots import UNREACHABLE_REASONS
from lycosa.frontier.core.model import SegmentState, SegmentView, Selection
from lycosa.frontier.core.segments import segment_order, starts_at
from lycosa.frontier.core.states import State
from lycosa.frontier.ports import Frontier, FrontierOperations
from lycosa.http.core.robots import robots_from_response

SLICE = 1000
"""Maximum number of rows examined between two commits."""

CARRIED = "carried"
"""The key among the positions for the segment that has taken over all URLs of the previous one."""


async def refresh(frontier: Frontier, operations: FrontierOperations, segment: str, before: float, now: float) -> int:
    """Requeue the URLs that were done or dead before this time (unix seconds). Return how many.

    Their reasons do not matter: robots.txt, scope and depth are checked again when the record is leased.
    """
    old = Selection(states=(State.DONE, State.DEAD), segment=segment, before=before)
    await _expire_unreachable_robots(frontier, operations, old, now)
    return await _requeue(operations, old, None, now)


async def retry_dead(frontier: Frontier, operations: FrontierOperations, segment: str, now: float) -> int:
    """Requeue the dead URLs. Return how many.

    With a time segment, only those of the segment: `CarryOver` has copied those of the previous one.
    """
    dead = Selection(states=(State.DEAD,), segment=segment if starts_at(segment) else None)
    await _expire_unreachable_robots(frontier, operations, dead, now)
    return await _requeue(operations, dead, None, now)


async def _expire_unreachable_robots(
    frontier: Frontier, operations: FrontierOperations, requeued: Selection, now: float
) -> None:
    """Expire each robots.txt that was unreachable for these URLs, so that it is fetched again.

    It forbids everything and may be valid for hours, so the requeued URLs would die at once.
    """
    dead = replace(requeued, states=(State.DEAD,), reason=UNREACHABLE_REASONS)
    cursor: str | None = ""
    while cursor is not None:
        rows, cursor = await operations.rows(dead, cursor, SLICE)
        for host in {row.record.host for row in rows}:
            facts = await frontier.host_facts(host)
            if facts is not None and robots_from_response(facts.robots, facts.robots_status).unreachable:
                await frontier.set_host_facts(host, replace(facts, robots_at=0.0), now)


class CarryOver:
    """Copies the URLs of the previous time segment into `segment`."""

    def __init__(self, frontier: Frontier, operations: FrontierOperations, committer: Committer, segment: str) -> None:
        self._frontier = frontier
        self._operations = operations
        self._committer = committer
        self._segment = segment
        self._mark = int.from_bytes(blake2b(segment.encode(), digest_size=7).digest())

    async def more(self, now: float) -> int:
        """Take over the remaining URLs of the previous segment. Return how many."""
        if not starts_at(self._segment) or (await self._frontier.positions()).get(CARRIED) == self._mark:
            return 0
        source = self._previous(await self._operations.segments())
        moved = 0
        if source is not None:
            rows = Selection(states=(State.DONE, State.DEAD, State.ARCHIVED), segment=source.name)
            moved = await _requeue(self._operations, rows, self._segment, now)
        if source is None or not (source.queued or source.leased or source.delayed):
            # Not before the source is finished: until then a second pass has to take over its later URLs.
            await self._committer.commit({CARRIED: self._mark})
        return moved

    def _previous(self, views: list[SegmentView]) -> SegmentView | None:
        """Return the latest segment before this one that has URLs, or None."""
        mine = segment_order(self._segment)
        return max(
            (
                view
                for view in views
                if segment_order(view.name) < mine and (starts_at(view.name) or not view.name)
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
