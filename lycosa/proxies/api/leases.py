"""The leases that an API server has granted, by ids that cannot be guessed.

A token of the pool is a counter: a client that sees it could release the leases of others. So clients get a random id
instead. Ids are in the memory of this process: after a restart they are unknown, and the proxies come back when their
leases expire.
"""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_urlsafe

from lycosa.proxies.core.pool.choices import LeaseChoice
from lycosa.proxies.ports import ProxyLease

LEASES_MAX = 100_000

KEEP_S = 600.0
"""How long an expired lease is remembered, so that the pool can count a late release."""

ID_BYTES = 18


class LeaseRegistry:
    """Leases by id, those added or renewed longest ago first. Times in unix seconds."""

    def __init__(self) -> None:
        self._leases: OrderedDict[str, tuple[ProxyLease, float, LeaseChoice]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._leases)

    def room(self, now: float) -> int:
        """Forget leases that expired long ago. Return how many more can be added."""
        while self._leases:  # stops at a long lease: the expired ones behind it are forgotten after it
            lease_id, (_, deadline, _) = next(iter(self._leases.items()))
            if deadline + KEEP_S > now:
                break
            del self._leases[lease_id]
        return LEASES_MAX - len(self._leases)

    def add(self, lease: ProxyLease, choice: LeaseChoice) -> str:
        """Add a lease. Return its id."""
        lease_id = token_urlsafe(ID_BYTES)
        self._leases[lease_id] = (lease, lease.deadline, choice)
        return lease_id

    def get(self, lease_id: str) -> ProxyLease | None:
        """Return a lease, None for an unknown id."""
        found = self._leases.get(lease_id)
        return None if found is None else found[0]

    def renew(self, lease_id: str, deadline: float) -> None:
        """Set the deadline of a lease."""
        if lease_id in self._leases:
            lease, _, choice = self._leases.pop(lease_id)
            self._leases[lease_id] = (lease, deadline, choice)

    def remove(self, lease_id: str) -> LeaseChoice | None:
        """Remove a lease. Return its choice, None for an unknown id."""
        found = self._leases.pop(lease_id, None)
        return None if found is None else found[2]
