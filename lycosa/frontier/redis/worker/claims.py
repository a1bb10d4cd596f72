"""The claims of one worker: transfers that are no records and wait for a turn of their host.

All of them are in the line of the host in Redis (`frontier/redis/lua/claims.lua`), but only the first of ours asks
whether it is its turn; the others are woken when it is for them to ask. What ends here wakes too, so that a worker
hears at once of a place that it gave up itself, and only waits by the clock for what others do.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.frontier.core import claims as core
from lycosa.frontier.core.scheduler import Claim, Host
from lycosa.frontier.redis.worker.partition import Partition, Told
from lycosa.frontier.redis.worker.session import Session


class Claims:
    """The lines of our claims, by host."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lines: dict[str, OrderedDict[Claim, None]] = {}
        self._waiting = self._claimed = 0
        self._asking: set[asyncio.Task[None]] = set()

    def claim(self, host: str, wake: Callable[[], None]) -> Claim:
        """Join the line of the host. Raises `UsageError` when far too many wait."""
        if self._waiting >= core.WAITING_MAX:
            raise UsageError(f"{core.WAITING_MAX:,} transfers wait for their turn already: fetch fewer at a time")
        self._waiting += 1
        self._claimed += 1
        claim = Claim(Host(key=host), wake, self._claimed)
        self._lines.setdefault(host, OrderedDict())[claim] = None
        self._session.of(host).add("k", claim.number, host)
        return claim

    async def turn(self, claim: Claim, now: float) -> Told:
        """Ask; `at` is 0 when the transfer starts now, else when to ask again by our clock."""
        host = claim.host.key
        if claim.granted:
            return Told(0.0)
        if next(iter(self._lines.get(host, ())), None) is not claim:
            return Told(core.WHEN_WOKEN)
        partition = self._session.of(host)
        partition.turns[claim.number] = None
        partition.add("?", claim.number, host)
        await self._send(partition)
        told = partition.turns.pop(claim.number, None)
        if told is None:  # the answer was lost
            return Told(math.nextafter(now, math.inf))
        if told.at:
            return told._replace(at=told.at - partition.shift_s)
        self._leave(claim)
        claim.granted, claim.address = True, told.address
        return told

    def unclaim(self, claim: Claim) -> bool:
        """Leave the line, or end the transfer. Return whether that was anything new."""
        waits = claim in self._lines.get(claim.host.key, ())
        if waits:
            self._session.of(claim.host.key).turns.pop(claim.number, None)
            self._leave(claim)
        elif not claim.granted:
            return False
        claim.granted = False
        self._session.of(claim.host.key).add("u", claim.number)
        self.wake(claim.host.key)
        return True

    def wake(self, host: str) -> None:
        """Something has changed for the host: tell the first of its line."""
        line = self._lines.get(host)
        if line is not None:
            next(iter(line)).wake()

    def _leave(self, claim: Claim) -> None:
        host = claim.host.key
        self._waiting -= 1
        del self._lines[host][claim]
        if self._lines[host]:
            self.wake(host)
        else:
            del self._lines[host]

    async def _send(self, partition: Partition) -> None:
        """Send what waits, to the end: who does not wait for the answer any more says so afterwards."""
        sending = asyncio.create_task(self._session.send([partition]))
        self._asking.add(sending)
        sending.add_done_callback(self._sent)
        await asyncio.shield(sending)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        """Whoever still waits hears how it ended; nobody has to."""
        self._asking.discard(sending)
        if not sending.cancelled():
            sending.exception()
