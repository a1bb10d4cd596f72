"""The claims of a worker: transfers without a record that wait for their host.

A claim waits in the queue of its host in Redis (`frontier/redis/lua/claims.lua`). Of this worker's claims on a host,
only the first asks the server whether it may start. A claim is woken when it becomes the first, and when a transfer of
this worker to the host ends. So a worker reuses its own slots at once, and polls only for those of others.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.frontier.core import claims
from lycosa.frontier.core.scheduler import Claim, Host
from lycosa.frontier.redis.worker.partition import Partition, StartAnswer
from lycosa.frontier.redis.worker.session import Session


class WorkerClaims:
    """The waiting claims of this worker, by host."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queues: dict[str, OrderedDict[Claim, None]] = {}
        self._waiting = self._last_number = 0
        self._sending: set[asyncio.Task[None]] = set()

    def claim(self, host: str, wake: Callable[[], None]) -> Claim:
        """Raises `UsageError` if `claims.WAITING_MAX` claims wait."""
        if self._waiting >= claims.WAITING_MAX:
            raise UsageError(f"{claims.WAITING_MAX:,} transfers are already waiting: fetch fewer at a time")
        self._waiting += 1
        self._last_number += 1
        claim = Claim(Host(key=host), wake, self._last_number)
        self._queues.setdefault(host, OrderedDict())[claim] = None
        self._session.partition_of(host).add("claim", claim.number, host)
        return claim

    async def try_start(self, claim: Claim, now: float) -> StartAnswer:
        """Ask the server: `at` of the answer is 0 for a start, else when to ask again (our clock)."""
        host = claim.host.key
        if claim.granted:
            return StartAnswer(0.0)
        if next(iter(self._queues.get(host, ())), None) is not claim:
            return StartAnswer(claims.WHEN_WOKEN)
        partition = self._session.partition_of(host)
        partition.starts[claim.number] = None
        partition.add("try_start", claim.number, host)
        await self._send(partition)
        answer = partition.starts.pop(claim.number, None)
        if answer is None:  # the answer was lost
            return StartAnswer(math.nextafter(now, math.inf))
        if answer.at:
            return answer._replace(at=answer.at - partition.clock_ahead_s)
        self._remove(claim)
        claim.granted, claim.address = True, answer.address
        return answer

    def release(self, claim: Claim) -> bool:
        """Remove a waiting claim, or end its transfer. Return False if it has ended already."""
        if claim in self._queues.get(claim.host.key, ()):
            self._session.partition_of(claim.host.key).starts.pop(claim.number, None)
            self._remove(claim)
        elif not claim.granted:
            return False
        claim.granted = False
        self._session.partition_of(claim.host.key).add("release_claim", claim.number)
        self.wake(claim.host.key)
        return True

    def wake(self, host: str) -> None:
        """Wake the first claim of a host, whose state has changed."""
        queue = self._queues.get(host)
        if queue is not None:
            next(iter(queue)).wake()

    def _remove(self, claim: Claim) -> None:
        host = claim.host.key
        self._waiting -= 1
        del self._queues[host][claim]
        if self._queues[host]:
            self.wake(host)
        else:
            del self._queues[host]

    async def _send(self, partition: Partition) -> None:
        # Shielded: a cancelled caller then releases its claim, and the release must not overtake this call.
        sending = asyncio.create_task(self._session.send([partition]))
        self._sending.add(sending)
        sending.add_done_callback(self._sent)
        await asyncio.shield(sending)

    def _sent(self, sending: asyncio.Task[None]) -> None:
        self._sending.discard(sending)
        if not sending.cancelled():
            sending.exception()  # marks the exception as retrieved, in case the caller was cancelled
