"""The leases of the tasks under way: each is renewed at half its time, for as long as its task lives.

So a slow callback neither loses its work nor is run twice. Whoever asks the frontier to `expire` calls `renew` before,
with the same time: a lease that ran out while the loop was blocked is still held then, and lives on.
"""

from __future__ import annotations

from dataclasses import dataclass

from lycosa.core.model import Lease
from lycosa.ports import Frontier


@dataclass(slots=True)
class _Held:
    lease: Lease
    renew_at: float


class Leases:
    """What this worker holds. Times are unix seconds."""

    def __init__(self, frontier: Frontier) -> None:
        self._frontier = frontier
        # Ordered by `renew_at`: every lease lasts equally long, and a renewed one goes to the end.
        self._held: dict[int, _Held] = {}

    def begin(self, lease: Lease, now: float) -> None:
        """Work on the lease begins."""
        self._held[lease.token] = _Held(lease, (now + lease.expires_at) / 2)

    def end(self, lease: Lease) -> None:
        """Work on the lease is over."""
        self._held.pop(lease.token, None)

    def next_renewal(self) -> float | None:
        """When `renew` has something to do."""
        return next((held.renew_at for held in self._held.values()), None)

    async def renew(self, now: float) -> None:
        """Extend the leases whose half time is over. One that is no longer held is left to its end: it is refused."""
        while (at := self.next_renewal()) is not None and at <= now:
            held = self._held.pop(next(iter(self._held)))
            renewed = await self._frontier.renew(held.lease, now)
            if renewed is not None:
                self.begin(renewed, now)
