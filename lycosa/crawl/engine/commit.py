"""Group commit: many pages become durable in one step, items first.

The sinks flush and return their positions; the frontier commits its changes together with these positions. A crash
between these two steps leaves items after the committed position. The sink cuts them off when it is opened again, and
their pages are fetched again, because their acks were not committed. So every item is in the output exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from lycosa.frontier.ports import Frontier
from lycosa.storage.ports import Sink

CLEAN = "clean"
"""A key in the positions: 1 after a clean end, 0 while the crawl runs."""

NO_MARKS: Mapping[str, int] = {}


class SettleLock:
    """A shared/exclusive lock: any number of settlers (`async with`), or one `exclusive` holder.

    When the exclusive holder leaves, all waiting settlers enter at once.
    """

    def __init__(self) -> None:
        self._inside = 0
        self._exclusive = asyncio.Lock()
        self._open = asyncio.Event()
        self._open.set()
        self._empty = asyncio.Event()

    @property
    def is_exclusive(self) -> bool:
        return not self._open.is_set()

    async def __aenter__(self) -> None:
        while not self._open.is_set():
            await self._open.wait()
        self._inside += 1

    async def __aexit__(self, *error: object) -> None:
        self._inside -= 1
        if not self._inside:
            self._empty.set()

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        async with self._exclusive:
            self._open.clear()
            try:
                while self._inside:
                    self._empty.clear()
                    await self._empty.wait()
                yield
            finally:
                self._open.set()


@dataclass(eq=False, repr=False)
class Committer:
    """Commits `every_s` seconds after a change, or after `acks_max` settled leases.

    `on_commit` is called with the committed positions.
    """

    frontier: Frontier
    sinks: Sequence[Sink]
    every_s: float
    acks_max: int
    on_commit: Callable[[Mapping[str, int]], None]

    def __post_init__(self) -> None:
        self._acks = 0
        self._changed = asyncio.Event()
        self._full = asyncio.Event()
        self._abandoned = False
        self.save: Callable[[], Awaitable[None]] | None = None
        """Saves the state outside the frontier (cookies, spider state), before the frontier commits."""
        self.settle_lock = SettleLock()
        """Held while a lease is settled: its ack and items are in the same commit. A commit holds it exclusively."""

    def note_change(self) -> None:
        """Record that a lease was settled, or other state changed."""
        self._acks += 1
        self._changed.set()
        if self._acks >= self.acks_max:
            self._full.set()

    def abandon(self) -> None:
        """Refuse all further commits: a lease was settled only in part."""
        self._abandoned = True

    async def run(self) -> None:
        while True:
            await self._changed.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.every_s):
                    await self._full.wait()
            await self.commit()

    async def commit(self, marks: Mapping[str, int] = NO_MARKS) -> bool:
        """Make everything settled so far durable, and add `marks` to the positions.

        Returns False after `abandon`. If it raises `StateError`, the state of the last commit is kept.
        """
        async with self.settle_lock.exclusive():
            self._acks = 0
            self._changed.clear()
            self._full.clear()
            if self._abandoned:
                return False
            # The frontier is last: if a crash prevents its commit, the sinks drop the items, and pages are refetched.
            positions = {sink.name: await sink.flush() for sink in self.sinks}
            if self.save is not None:
                await self.save()
            await self.frontier.commit({**positions, **marks})
        self.on_commit(positions)
        return True

    async def open_sinks(self, *, afresh: bool = False) -> dict[str, int]:
        """Open the sinks at their committed positions. Commit and return where they start to write.

        Output after the committed position is cut off, except after a clean end. A sink that is new to this crawl
        starts at the end of its output, or with `afresh` at the beginning.
        """
        committed = await self.frontier.positions()
        clean = bool(committed.get(CLEAN))
        starts = {}
        for sink in self.sinks:
            position = committed.get(sink.name, 0 if afresh else None)
            # After a clean end, another crawl may have written to this file: its data after the position is kept.
            starts[sink.name] = await sink.open(position, keep=clean)
        await self.frontier.commit({**starts, CLEAN: 0})
        return starts

    async def finish(self) -> None:
        """Commit, and record a clean end: no data of this crawl lies after the committed positions."""
        await self.commit()
        if not self._abandoned:
            await self.frontier.commit({CLEAN: 1})
