"""What a worker was told of hosts together with its leases, as far as it is needed here."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

HOSTS_KNOWN_MAX = 100_000
"""Hosts of which is remembered that they keep a pause, or how long their address holds."""


class Hosts:
    """Times are those of the script's clock."""

    def __init__(self) -> None:
        self._paced: OrderedDict[str, bool] = OrderedDict()
        self._addresses: OrderedDict[str, float] = OrderedDict()

    def told(self, host: str, known_until: float, *, paced: bool = False) -> None:
        """Remember whether the host keeps a pause, and until when its address is known; 0 when that was not told."""
        if paced:
            _remember(self._paced, host, True)
        if known_until:
            _remember(self._addresses, host, known_until)

    def is_paced(self, host: str) -> bool:
        """Tell whether it keeps a pause."""
        return host in self._paced

    def known_until(self, host: str) -> float:
        """Return until when its address is known; 0 when it is not."""
        return self._addresses.get(host, 0.0)


def _remember(hosts: OrderedDict[str, Any], host: str, value: Any) -> None:
    hosts[host] = value
    if len(hosts) > HOSTS_KNOWN_MAX:
        hosts.popitem(last=False)
