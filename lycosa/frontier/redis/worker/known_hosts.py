"""What a worker knows about hosts from its leases and claims."""

from __future__ import annotations

from lycosa.core.recent_dict import RecentDict

KNOWN_HOSTS_MAX = 100_000


class KnownHosts:
    """Which of the last KNOWN_HOSTS_MAX hosts have a delay, and until when their addresses are known.

    Times are by the script's clock.
    """

    def __init__(self) -> None:
        self._with_delay: RecentDict[str, bool] = RecentDict(KNOWN_HOSTS_MAX)
        self._addresses: RecentDict[str, float] = RecentDict(KNOWN_HOSTS_MAX)

    def update(self, host: str, address_until: float, *, has_delay: bool = False) -> None:
        """False and 0 change nothing."""
        if has_delay:
            self._with_delay[host] = True
        if address_until:
            self._addresses[host] = address_until

    def has_delay(self, host: str) -> bool:
        return host in self._with_delay

    def address_until(self, host: str) -> float:
        """Return 0 if the address is unknown."""
        return self._addresses.get(host, 0.0)
