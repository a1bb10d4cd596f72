"""Tell public IP addresses from private ones, to keep links on public pages from reaching private services.

No function raises. An address that embeds an IPv4 address (mapped, NAT64, 6to4) is public if the embedded address is
public.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import ada_url

# IANA's special-purpose registries (RFC 6890 and its updates): the blocks that are not globally reachable.
NOT_PUBLIC_V4 = [
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this host
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # shared address space (CGNAT); 100.100.100.200 serves metadata at Alibaba
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # platform services of Azure's virtual machines, though it looks public
        "169.254.0.0/16",  # link-local; 169.254.169.254 serves metadata in most clouds
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; 192.0.0.192 serves metadata at Oracle
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # 6to4 relay anycast, deprecated
        "192.168.0.0/16",  # private
        "198.18.0.0/15",  # benchmarking
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
]
PUBLIC_V6 = IPv6Network("2000::/3")
"""The only block assigned for global unicast (RFC 4291)."""

NOT_PUBLIC_V6 = [
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments: Teredo, ORCHID, benchmarking
        "2001:db8::/32",  # documentation
        "3fff::/20",  # documentation
    )
]
SIX_TO_FOUR = IPv6Network("2002::/16")
EMBEDDING_V4 = [
    IPv6Network("::ffff:0:0/96"),  # mapped
    IPv6Network("64:ff9b::/96"),  # NAT64
]

HOSTS_MAX = 16_384
"""Maximum number of hosts whose result is cached; most links lead to the same few hosts."""

PRIVATE_NAMES = ("localhost", "localdomain", "local", "internal", "home.arpa")
"""Names that are never delegated (RFC 6761, 6762, 8375, ICANN's `internal`), with their subdomains."""


def is_public(ip: str) -> bool:
    """Return whether the address is globally reachable; False for text that is not an address."""
    try:
        address = ip_address(ip)
    except ValueError:
        return False
    return _public_v4(address) if isinstance(address, IPv4Address) else _public_v6(address)


@lru_cache(HOSTS_MAX)
def looks_private(host: str) -> bool:
    """Return whether a host, as written in a URL, is certainly private. Names are not looked up.

    The private hosts are: addresses that are not public, names such as `localhost` or `printer.local`, and text that is
    not a host.
    """
    name = host.strip("[]")
    try:
        url = ada_url.URL(f"http://[{name}]/" if ":" in name else f"http://{host}/")
    except ValueError:
        return True
    name = str(url.hostname).strip("[]").rstrip(".")
    if url.host_type != ada_url.HostType.DEFAULT:
        return not is_public(name)
    return name in PRIVATE_NAMES or name.endswith(tuple(f".{each}" for each in PRIVATE_NAMES))


def _public_v4(address: IPv4Address) -> bool:
    return not any(address in block for block in NOT_PUBLIC_V4)


def _public_v6(address: IPv6Address) -> bool:
    address = IPv6Address(int(address))  # without its zone: `fe80::1%eth0 in block` would be False
    if any(address in block for block in EMBEDDING_V4):
        return _public_v4(IPv4Address(int(address) & 0xFFFF_FFFF))
    if address in SIX_TO_FOUR:
        return _public_v4(IPv4Address(int(address) >> 80 & 0xFFFF_FFFF))
    return address in PUBLIC_V6 and not any(address in block for block in NOT_PUBLIC_V6)
