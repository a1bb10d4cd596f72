"""Sends queued verbs (commands to a partition) together after a short delay."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from lycosa.core.errors import StateError
from lycosa.frontier.redis.worker.calls import NO_LEASES, ExchangeRequest
from lycosa.frontier.redis.worker.session import Session

FLUSH_MIN_S = 0.005
"""Minimum delay before queued verbs are sent."""


class EventFlusher:
    """Sends the queued verbs of a session after `delay_s`, unless an exchange sends them first."""

    def __init__(self, session: Session, delay_s: float) -> None:
        self._session = session
        self._delay_s = max(FLUSH_MIN_S, delay_s)
        self._unsent_hosts: set[str] = set()
        self._requested = False
        self._task: asyncio.Task[None] | None = None

    def flush_soon(self) -> None:
        if self._session.callers_clock:
            return  # a caller's clock (in simulations) may stand still: the next exchange sends the verbs
        self._requested = True
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._flush_later())

    async def flush_facts(self, host: str = "") -> None:
        """Send the new facts soon. With `callers_clock`, send them now: that clock may stand still."""
        if host:
            self._unsent_hosts.add(host)
        if self._session.callers_clock:
            await self._send()
        else:
            self.flush_soon()

    async def sync(self, host: str) -> None:
        """Wait until the server has the facts that this worker found about the host."""
        if host in self._unsent_hosts:
            # Another exchange may have taken them and be in transit: this one waits for it.
            home = self._session.partition_of(host)
            await self._session.exchange([ExchangeRequest(home, NO_LEASES, always=False)])

    async def close(self) -> None:
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def _flush_later(self) -> None:
        while self._requested:
            wait_s = self._delay_s
            while wait_s > 0:
                await asyncio.sleep(wait_s)
                # An exchange may have sent the verbs meanwhile; the ones queued now are newer.
                wait_s = self._session.waiting_since() + self._delay_s - time.monotonic()
            self._requested = False
            with suppress(StateError):  # the next call of the worker raises the error
                await self._send()

    async def _send(self) -> None:
        sent = set(self._unsent_hosts)
        await self._session.send()
        self._unsent_hosts -= sent
