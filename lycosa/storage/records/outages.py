"""Waits while a database is unavailable, locked or full, so that a crawl survives a restart of the server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from lycosa.core.errors import StorageFull, StorageUnavailable
from lycosa.core.units import format_duration

GIVE_UP_S = 600.0
PAUSE_MIN_S, PAUSE_MAX_S = 0.5, 30.0

Temporary = StorageUnavailable | StorageFull
TEMPORARY = (StorageUnavailable, StorageFull)


class OutageWait:
    """Delays the retries of all calls in an outage. `say` gets a message when the outage begins, and when it ends."""

    def __init__(self, say: Callable[[str], None], give_up_s: float = GIVE_UP_S) -> None:
        self._say, self._give_up_s = say, give_up_s
        self._since: float | None = None

    async def wait(self, error: Temporary) -> None:
        """Wait before the next attempt. The pause grows with the outage. After `give_up_s` seconds, raises the error
        instead."""
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
            limit = format_duration(self._give_up_s)
            self._say(f"{error}. New torrents wait until they can be stored again, for at most {limit}")
        passed = now - self._since
        if passed >= self._give_up_s:
            raise error
        await asyncio.sleep(min(max(passed / 2, PAUSE_MIN_S), PAUSE_MAX_S))

    def succeeded(self) -> None:
        if self._since is not None:
            passed = asyncio.get_running_loop().time() - self._since
            self._since = None
            self._say(f"the torrents can be stored again after {format_duration(passed)}")
