"""The segments of one run: determines them, requeues URLs of earlier segments, and drops old segments."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from lycosa.crawl.engine.refresh import CarryOver, refresh, retry_dead
from lycosa.crawl.engine.retention import drop_expired
from lycosa.crawl.engine.run_parts import RunStorage
from lycosa.frontier.core.segments import Retention, SegmentNaming
from lycosa.frontier.ports import FrontierOperations

log = logging.getLogger(__name__)

DROP_EVERY_S = 600.0


class SegmentOptions(NamedTuple):
    """What a run does with stored URLs and segments.

    URLs that became done or dead more than `refresh_s` ago are fetched again; with `retry_dead`, all dead URLs, too.
    `has_done`: whether the frontier stores done URLs. Segments are exported to the folder `export_to` before they are
    dropped.
    """

    refresh_s: float | None = None
    retry_dead: bool = False
    has_done: bool = True
    retention: Retention = Retention()
    export_to: Path | None = None


class RunSegments:
    """The segments of a run: the segment of its first seed and, if requests have periods, one for each period.

    Requests have periods (`day`, `3d`) only if the user defines a function for them. `began_at`: the start of the run.
    """

    def __init__(
        self,
        storage: RunStorage,
        operations: FrontierOperations,
        namings: Sequence[SegmentNaming],
        options: SegmentOptions,
        began_at: float,
    ) -> None:
        self._storage = storage
        self._operations = operations
        self._namings = namings
        self._options = options
        self._began_at = began_at
        self._carry = CarryOver(storage.frontier, operations, storage.committer, ())
        self.first = ""
        self.has_begun = False

    async def begin(self, first: str) -> None:
        """Set the segment of the first seed, requeue stale and dead records, and drop old segments.

        Call it before the seeds are queued: a record that is copied from the previous segment keeps its validators
        (ETag, Last-Modified), but a URL that is already in the new segment is not copied.
        """
        self.first, self.has_begun = first, True
        frontier, operations, now, options = self._storage.frontier, self._operations, self._began_at, self._options
        for naming in self._namings:
            naming.begin_run(now)
        await frontier.begin_run(now)
        await self.drop_expired(now)
        segments = self.current(view.name for view in await operations.segments())
        self._carry = CarryOver(frontier, operations, self._storage.committer, segments if options.has_done else ())
        age_s = options.refresh_s
        old = 0 if age_s is None else await refresh(operations, segments, now - age_s, now)
        carried = await self._carry.more(now)
        dead = await retry_dead(operations, segments, now) if options.retry_dead else 0
        if old or carried or dead:
            log.info("requeued %d old URLs, %d from previous segments, %d dead", old, carried, dead)

    def current(self, stored: Iterable[str]) -> list[str]:
        """Return the segments of this run, given the names of all stored ones.

        If requests have periods, there is one segment for each period in these names (`3d` in `2026-11-21+3d`).
        """
        names = list(stored)
        return list(dict.fromkeys(name for each in self._namings for name in each.current(self.first, names)))

    async def take_over(self, now: float) -> int:
        return await self._carry.more(now)

    async def drop_expired(self, now: float) -> None:
        options = self._options
        if dropped := await drop_expired(self._operations, options.retention, now, options.export_to):
            log.info("dropped old segments: %s", ", ".join(dropped))

    async def drop_regularly(self, now: Callable[[], float], failed: Callable[[BaseException], None]) -> None:
        """Drop expired segments every DROP_EVERY_S. An error ends the loop, and is passed to `failed`."""
        try:
            while True:
                await asyncio.sleep(DROP_EVERY_S)
                await self.drop_expired(now())
        except Exception as error:  # noqa: BLE001  the engine raises it
            failed(error)
