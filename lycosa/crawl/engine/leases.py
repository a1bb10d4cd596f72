"""The leases of the tasks under way: each is renewed at half its time, for as long as its task lives.

So a slow callback neither loses its work nor is run twice. Whoever asks the frontier to `expire` calls `renew` before,
with the same time: a lease that ran out while the loop was blocked is still held then, and lives on.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from lycosa.frontier.core.model import Lease
from lycosa.frontier.ports import Frontier


@dataclass(slots=True)
class _Held:
    lease: Lease
    renew_at: float


class LeaseRenewer:
    """What this worker holds, and who works on it: at most `lease_max_s` on one lease. Times are unix seconds."""

    def __init__(self, frontier: Frontier, lease_max_s: float) -> None:
        self._frontier = frontier
        self._lease_max_s = lease_max_s
        # In the order of their beginnings, and so of their ends.
        self._until: dict[int, float] = {}
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._overdue: set[int] = set()
        # Ordered by `renew_at`: every lease lasts equally long, and a renewed one goes to the end.
        self._held: dict[int, _Held] = {}

    def begin(self, lease: Lease, now: float) -> None:
        """Work on the lease begins."""
        self._held[lease.token] = _Held(lease, (now + lease.expires_at) / 2)

    def works(self, lease: Lease, task: asyncio.Task[None], now: float) -> None:
        """This task works on the lease from now on."""
        self._until[lease.token] = now + self._lease_max_s
        self._workers[lease.token] = task

    def end(self, lease: Lease) -> None:
        """Work on the lease is over."""
        token = lease.token
        self._held.pop(token, None)
        self._until.pop(token, None)
        self._workers.pop(token, None)
        self._overdue.discard(token)

    def next_renewal(self) -> float | None:
        """When `renew` or `give_up` has something to do."""
        renew_at = next((held.renew_at for held in self._held.values()), None)
        until = next(iter(self._until.values()), None)
        return until if renew_at is None else renew_at if until is None else min(renew_at, until)

    def give_up(self, now: float) -> None:
        """Cancel the tasks that have worked on their lease for longer than they may."""
        while self._until:
            token, until = next(iter(self._until.items()))
            if until > now:
                return
            del self._until[token]
            self._overdue.add(token)
            self._workers[token].cancel()

    def is_overdue(self, lease: Lease) -> bool:
        """Whether the task of this lease was cancelled because it took too long."""
        return lease.token in self._overdue

    async def renew(self, now: float) -> None:
        """Extend the leases whose half time is over. One that is no longer held is left to its end: it is refused."""
        while self._held:
            token = next(iter(self._held))
            if self._held[token].renew_at > now:
                return
            held = self._held.pop(token)
            renewed = await self._frontier.renew(held.lease, now)
            if renewed is not None:
                self.begin(renewed, now)
