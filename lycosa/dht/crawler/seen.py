"""Records when stored torrents were last seen in the network. A full store uses these times to choose what to evict."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from lycosa.storage.ports import RecordStore

FLUSH_EVERY_S = 60.0
SEEN_MAX = 50_000
"""Infohashes between two flushes, about 5 MB. More are dropped: they will be seen again."""
BATCH = 250
PRECISION_S = 86_400
"""Times are rounded down to the day, so that a torrent is written at most once a day."""


class SeenStage:
    """Collects seen infohashes. `now` returns unix seconds."""

    def __init__(self, store: RecordStore, now: Callable[[], float]) -> None:
        self._store, self._now = store, now
        self._seen: set[bytes] = set()

    def add(self, infohashes: Iterable[bytes]) -> None:
        """Infohashes that are not stored are allowed."""
        if len(self._seen) < SEEN_MAX:
            self._seen.update(infohashes)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        seen, self._seen = list(self._seen), set()
        today = self._now() // PRECISION_S * PRECISION_S
        for start in range(0, len(seen), BATCH):
            await self._store.mark_seen(seen[start : start + BATCH], today)
