"""What a worker tells the server although nobody asks: soon, and together with what else there is to tell."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from lycosa.core.errors import StateError
from lycosa.frontier.redis.worker.session import Session

TELL_S = 0.005
"""What was learned, and when hosts heard of requests, waits at least so long for more."""


class Teller:
    """Sends what waits in a session after `soon_s`, unless an exchange has taken it along."""

    def __init__(self, session: Session, soon_s: float) -> None:
        self._session = session
        self._soon_s = max(TELL_S, soon_s)
        self._news: set[str] = set()
        self._wanted = False
        self._task: asyncio.Task[None] | None = None

    def tell(self) -> None:
        """Let what waits go soon."""
        if self._session.callers_clock:  # which stands still: it goes with the next exchange
            return
        self._wanted = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._tell())

    async def learned(self, host: str = "") -> None:
        """Let something go soon that was learned, of this host; by a caller's clock, which stands still, at once."""
        if host:
            self._news.add(host)
        if self._session.callers_clock:
            await self._send()
        else:
            self.tell()

    async def is_told(self, host: str) -> None:
        """Wait until the server knows what was learned of the host here."""
        if host in self._news:
            await self._session.send()

    async def close(self) -> None:
        """Wait for what is under way."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _tell(self) -> None:
        while self._wanted:
            wait_s = self._soon_s
            while wait_s > 0:  # exchanges took what waited; what waits now is younger
                await asyncio.sleep(wait_s)
                wait_s = self._session.waits_since() + self._soon_s - time.monotonic()
            self._wanted = False
            with suppress(StateError):  # whoever asks next hears of it
                await self._send()

    async def _send(self) -> None:
        told = set(self._news)
        await self._session.send()
        self._news -= told
