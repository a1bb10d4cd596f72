"""What a worker knows of hosts: from its leases and its claims."""

from __future__ import annotations

from lycosa.core.recent_dict import RecentDict

KNOWN_HOSTS_MAX = 100_000


class KnownHosts:
    """Times are those of the script's clock. The last KNOWN_HOSTS_MAX hosts are kept."""

    def __init__(self) -> None:
        self._with_delay: RecentDict[str, bool] = RecentDict(KNOWN_HOSTS_MAX)
        self._addresses: RecentDict[str, float] = RecentDict(KNOWN_HOSTS_MAX)

    def update(self, host: str, address_until: float, *, has_delay: bool = False) -> None:
        """Note whether the host keeps a delay, and until when its address is known; 0 when that was not said."""
        if has_delay:
            self._with_delay[host] = True
        if address_until:
            self._addresses[host] = address_until

    def has_delay(self, host: str) -> bool:
        """Return True if the host keeps a delay between two starts."""
        return host in self._with_delay

    def address_until(self, host: str) -> float:
        """Return until when the address of the host is known; 0 when it is not."""
        return self._addresses.get(host, 0.0)
