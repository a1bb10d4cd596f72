"""The setting `allow_private`: private hosts to which links on public pages may lead."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from lycosa.core.addresses import is_public, looks_private

EVERYWHERE = "*"


class AllowedPrivate:
    """The entries of `allow_private`: networks, names with their subdomains, or EVERYWHERE."""

    def __init__(self, entries: Iterable[str]) -> None:
        self._networks: list[IPv4Network | IPv6Network] = []
        self._names: tuple[str, ...] = ()
        self.everywhere = False
        for entry in entries:
            if entry == EVERYWHERE:
                self.everywhere = True
                continue
            try:
                self._networks.append(ip_network(entry, strict=False))
            except ValueError:
                self._names += (entry.lower().rstrip("."),)

    def may_connect(self, ip: str) -> bool:
        """Whether a link on a public page may lead to this IP address."""
        return self.everywhere or is_public(ip) or self._has(ip)

    def is_named(self, host: str) -> bool:
        """Whether a host, as written in a URL, is allowed by name. Then its address is not checked."""
        name = host.lower().rstrip(".")
        return self.everywhere or name.endswith(tuple(f".{each}" for each in self._names)) or name in self._names

    def _has(self, ip: str) -> bool:
        try:
            address: IPv4Address | IPv6Address = ip_address(ip)
        except ValueError:
            return False
        if isinstance(address, IPv6Address):
            address = address.ipv4_mapped or IPv6Address(int(address))  # drops the zone
        return any(address in network for network in self._networks)


def is_public_page(ip: str, host: str) -> bool:
    """Whether a page came from a public address, so that its links are guarded.

    Without `ip` (from a proxy or a middleware), every host that does not look private counts as public.
    """
    return is_public(ip) if ip else not looks_private(host)
