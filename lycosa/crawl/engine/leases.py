"""Renews the lease of each running task when half of its time has passed.

So a slow callback neither loses its work nor runs twice. The engine calls `renew` right before the frontier's `expire`,
with the same time, so leases that ran out while the event loop was blocked are still renewed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import Frontier


@dataclass(slots=True)
class _Renewal:
    lease: Lease
    renew_at: float


class CallbackPages:
    """Limits the total body size of pages whose callbacks still run after the transfer."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._sizes: dict[int, int] = {}
        self._total = 0

    @property
    def is_full(self) -> bool:
        return self._total > self._bytes_max

    def add(self, lease: Lease, size: int) -> None:
        """Count a body until its lease is removed. A second call changes nothing."""
        if lease.token not in self._sizes:
            self._sizes[lease.token] = size
            self._total += size

    def remove(self, lease: Lease) -> None:
        self._total -= self._sizes.pop(lease.token, 0)


class LeaseRenewer:
    """The leases of this worker and their tasks. A task may take at most `lease_max_s`. Times are unix seconds."""

    def __init__(self, frontier: Frontier, lease_max_s: float) -> None:
        self._frontier = frontier
        self._lease_max_s = lease_max_s
        # By lease token, in the order of the deadlines: all tasks have the same time limit.
        self._deadlines: dict[int, float] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._overdue: set[int] = set()
        # In the order of `renew_at`: all leases have the same duration, and a renewed one moves to the end.
        self._renewals: dict[int, _Renewal] = {}

    def add(self, lease: Lease, now: float) -> None:
        self._renewals[lease.token] = _Renewal(lease, (now + lease.expires_at) / 2)

    def set_task(self, lease: Lease, task: asyncio.Task[None], now: float) -> None:
        self._deadlines[lease.token] = now + self._lease_max_s
        self._tasks[lease.token] = task

    def remove(self, lease: Lease) -> None:
        token = lease.token
        self._renewals.pop(token, None)
        self._deadlines.pop(token, None)
        self._tasks.pop(token, None)
        self._overdue.discard(token)

    def is_held(self, lease: Lease) -> bool:
        return lease.token in self._renewals

    def next_renewal(self) -> float | None:
        """Return when to call `renew` or `cancel_overdue` next; None without leases."""
        renew_at = next((renewal.renew_at for renewal in self._renewals.values()), None)
        deadline = next(iter(self._deadlines.values()), None)
        return deadline if renew_at is None else renew_at if deadline is None else min(renew_at, deadline)

    def cancel_overdue(self, now: float) -> None:
        while self._deadlines:
            token, deadline = next(iter(self._deadlines.items()))
            if deadline > now:
                return
            del self._deadlines[token]
            self._overdue.add(token)
            self._tasks[token].cancel()

    def is_overdue(self, lease: Lease) -> bool:
        return lease.token in self._overdue

    async def renew(self, now: float) -> None:
        """Renew the leases that are due. Forget those that have ended in the frontier."""
        while self._renewals:
            token = next(iter(self._renewals))
            if self._renewals[token].renew_at > now:
                return
            renewal = self._renewals.pop(token)
            renewed = await self._frontier.renew(renewal.lease, now)
            if renewed is not None:
                self.add(renewed, now)
