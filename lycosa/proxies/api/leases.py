"""The leases that an API gave away, by names that nobody can guess.

A lease of the pool has a target and a counted token: whoever can count could give back what others hold. So holders get
a random name for it. The names are in the memory of this process: after a restart a lease is over for its holder, and
its proxy comes back with its time.
"""

from __future__ import annotations

from collections import OrderedDict
from secrets import token_urlsafe

from lycosa.proxies.core.pool.choices import LeaseChoice
from lycosa.proxies.ports import ProxyLease

LEASES_MAX = 100_000
"""Leases that are out at a time."""

KEEP_S = 600.0
"""So long after its deadline a lease is remembered: the pool then counts that it came back too late."""

NAME_BYTES = 18


class LeaseRegistry:
    """Leases by name. `now` in unix seconds."""

    def __init__(self) -> None:
        self._held: OrderedDict[str, tuple[ProxyLease, float, LeaseChoice]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def room(self, now: float) -> int:
        """Forget what is long over, as far as it stands in front; return how many more there may be."""
        while self._held:
            name, (_, deadline, _) = next(iter(self._held.items()))
            if deadline + KEEP_S > now:
                break
            del self._held[name]
        return LEASES_MAX - len(self._held)

    def keep(self, lease: ProxyLease, choice: LeaseChoice) -> str:
        """Remember a lease. Return its name."""
        name = token_urlsafe(NAME_BYTES)
        self._held[name] = (lease, lease.deadline, choice)
        return name

    def get(self, name: str) -> ProxyLease | None:
        """Return the lease of a name, None for one that is not out."""
        found = self._held.get(name)
        return None if found is None else found[0]

    def renewed(self, name: str, deadline: float) -> None:
        """It has another deadline."""
        found = self._held.get(name)
        if found is not None:
            self._held[name] = (found[0], deadline, found[2])
            self._held.move_to_end(name)

    def take(self, name: str) -> LeaseChoice | None:
        """Forget a lease. Return how it came about, None for one that is not out."""
        found = self._held.pop(name, None)
        return None if found is None else found[2]
