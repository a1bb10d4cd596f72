"""What of a kept state is fetched again when a run begins: what is old, and in a new segment what the one before had.

Both go in slices that are committed one by one, and may be killed: whoever begins again finds what is left to do. URLs
keep their validators, so that a page that has not changed costs one conditional request.

A new segment takes over every URL of the one before, also those that were no pages (a 404 may be one today), because
an unchanged page shows no links: what only it leads to would never be found. That takes two passes when the older
segment is not finished yet: one at once, one when nothing is left to do.
"""

from __future__ import annotations

import asyncio
from hashlib import blake2b

from lycosa.crawl.engine.commit import Committer
from lycosa.frontier.core.model import SegmentState, SegmentView, Selection
from lycosa.frontier.core.segments import segment_order, starts_at
from lycosa.frontier.core.states import State
from lycosa.frontier.ports import Frontier, FrontierOperations

SLICE = 1000
"""Rows that are looked at between two commits."""

CARRIED = "carried"
"""The name among the positions under which a crawl notes which segment has all that the one before had."""


async def refresh(operations: FrontierOperations, segment: str, before: float, now: float) -> int:
    """Queue again what was done, or died, before this time. Return how many URLs.

    For whatever reason it was: robots.txt, scope and depth are looked at anew when it is lent.
    """
    old = Selection(states=(State.DONE, State.DEAD), segment=segment, before=before)
    return await _requeue(operations, old, None, now)


class CarryOver:
    """Takes the URLs of the segment before into `segment`, if both are made of time."""

    def __init__(self, frontier: Frontier, operations: FrontierOperations, committer: Committer, segment: str) -> None:
        self._frontier = frontier
        self._operations = operations
        self._committer = committer
        self._segment = segment
        self._mark = int.from_bytes(blake2b(segment.encode(), digest_size=7).digest())

    async def more(self, now: float) -> int:
        """Take over what is not taken over yet. Return how many URLs."""
        if not starts_at(self._segment) or (await self._frontier.positions()).get(CARRIED) == self._mark:
            return 0
        source = self._older(await self._operations.segments())
        moved = 0
        if source is not None:
            rows = Selection(states=(State.DONE, State.DEAD, State.ARCHIVED), segment=source.name)
            moved = await _requeue(self._operations, rows, self._segment, now)
        if source is None or not (source.queued or source.leased or source.delayed):
            await self._committer.commit({CARRIED: self._mark})
        return moved

    def _older(self, views: list[SegmentView]) -> SegmentView | None:
        """The last segment before this one that has something to give, now or later."""
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
        await asyncio.sleep(0)  # or Ctrl-C would have to wait for the last slice
        moved += some.requeued
        if some.next_cursor is None:
            return moved
        after = some.next_cursor
