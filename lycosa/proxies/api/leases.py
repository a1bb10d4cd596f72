"""The leases granted by an API server. Clients refer to them by random ids.

The tokens of a pool are ascending numbers: a client could guess them and release the leases of others. A restart
forgets the ids, and the proxies become free when their leases expire.
"""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_urlsafe

from lycosa.proxies.core.pool.choices import LeaseChoice
from lycosa.proxies.ports import ProxyLease

LEASES_MAX = 100_000

KEEP_S = 600.0
"""Seconds for which an expired lease is remembered: the pool can then count a late release."""

ID_BYTES = 18


class LeaseRegistry:
    """Leases by id, least recently added or renewed first. Times in unix seconds."""

    def __init__(self) -> None:
        self._leases: OrderedDict[str, tuple[ProxyLease, float, LeaseChoice]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._leases)

    def room(self, now: float) -> int:
        """Forget leases that expired more than KEEP_S ago. Return how many can be added."""
        while self._leases:  # stops at the first lease to keep: expired ones after it are forgotten later
            lease_id, (_, deadline, _) = next(iter(self._leases.items()))
            if deadline + KEEP_S > now:
                break
            del self._leases[lease_id]
        return LEASES_MAX - len(self._leases)

    def add(self, lease: ProxyLease, choice: LeaseChoice) -> str:
        lease_id = token_urlsafe(ID_BYTES)
        self._leases[lease_id] = (lease, lease.deadline, choice)
        return lease_id

    def get(self, lease_id: str) -> ProxyLease | None:
        found = self._leases.get(lease_id)
        return None if found is None else found[0]

    def held_s(self, lease_id: str, now: float) -> float:
        """Return the seconds since the lease was granted; 0 for an unknown id."""
        found = self._leases.get(lease_id)
        return 0.0 if found is None else now - found[2].at

    def renew(self, lease_id: str, deadline: float) -> None:
        if lease_id in self._leases:
            lease, _, choice = self._leases.pop(lease_id)
            self._leases[lease_id] = (lease, deadline, choice)

    def remove(self, lease_id: str) -> LeaseChoice | None:
        found = self._leases.pop(lease_id, None)
        return None if found is None else found[2]
