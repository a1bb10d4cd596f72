"""Notes which stored torrents were named again. When the store is full, those that nobody names go first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from lycosa.storage.ports import RecordStore

FLUSH_EVERY_S = 60.0
SEEN_MAX = 50_000
"""Infohashes between two flushes, about 5 MB. More are left out: they will be named again."""
BATCH = 500
"""Infohashes in a call of the store, which may wait for it."""
PRECISION_S = 86_400
"""To the day: a torrent that is named all the time is written once a day."""


class SeenStage:
    """See the module. `now` returns unix seconds."""

    def __init__(self, store: RecordStore, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._named: set[bytes] = set()

    def add(self, infohashes: Iterable[bytes]) -> None:
        """Note that these were named, whether they are stored or not."""
        if len(self._named) < SEEN_MAX:
            self._named.update(infohashes)

    async def run(self) -> None:
        """Tell the store from time to time, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Tell the store what was named."""
        named, self._named = list(self._named), set()
        today = self._now() // PRECISION_S * PRECISION_S
        for start in range(0, len(named), BATCH):
            await self._store.mark_seen(named[start : start + BATCH], today)
