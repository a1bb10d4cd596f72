"""Decides how much a proxy reveals about its client, from a request that a judge received through it.

    TRANSPARENT   the judge saw one of our addresses, as the source of the connection or in a header
    ANONYMOUS     it saw none, but headers reveal a proxy, or differ from those of a request without a proxy
    ELITE         the request looks like a request without a proxy, from another address

Addresses are compared in canonical form: any spelling of IPv6, IPv4-mapped IPv6, and the quotes, brackets and
ports of Forwarded (RFC 7239 §6) are understood. Of IPv6 only the /64 is compared, because machines change their
addresses within it (RFC 8981).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

VALUE_MAX = 4096
"""Characters of a header that are searched for addresses."""

ADDRESSES = re.compile(r"[0-9A-Fa-f:.]{2,60}(?:%\w{1,15})?")
PORT_OF_V4 = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d{1,5}")
IPV6_NETWORK_BITS = 64
PROXY_FIELDS = frozenset({
    "via", "forwarded", "proxy-connection", "proxy-authorization", "proxy-authenticate", "client-ip", "clientip",
    "true-client-ip", "cf-connecting-ip", "fastly-client-ip", "x-real-ip", "x-client-ip", "x-originating-ip",
    "x-remote-ip", "x-remote-addr", "x-cluster-client-ip", "x-bluecoat-via", "x-proxy-id", "x-proxy-connection",
    "x-proxyuser-ip", "x-imforwards", "x-via", "wl-proxy-client-ip", "max-forwards", "cdn-loop", "surrogate-capability",
})  # fmt: skip
"""In lower case. All headers that start with x-forwarded also count."""


class Anonymity(StrEnum):
    """The levels in ascending order."""

    TRANSPARENT = "transparent"
    ANONYMOUS = "anonymous"
    ELITE = "elite"

    def reaches(self, least: Anonymity) -> bool:
        order = list(Anonymity)
        return order.index(self) >= order.index(least)


@dataclass(frozen=True, slots=True)
class SeenRequest:
    """A request as a judge saw it. `address`: where it came from. `fields`: headers, names in lower case."""

    address: str
    fields: tuple[tuple[str, str], ...] = ()
    is_tls: bool = False


def anonymity(seen: SeenRequest, direct: SeenRequest, own: Collection[str] = ()) -> Anonymity:
    """Return the anonymity of a request. `direct`: one without a proxy; `own`: our other addresses."""
    ours = {network for text in (direct.address, *own) if (network := network_of(text)) is not None}
    values = [value for name, value in seen.fields if name != "host"]  # Host has the address of the judge
    if any(network_of(each) in ours for each in (seen.address, *addresses_in(values))):
        return Anonymity.TRANSPARENT
    if any(reveals_proxy(name) for name, _ in seen.fields) or _compared(seen) != _compared(direct):
        return Anonymity.ANONYMOUS
    return Anonymity.ELITE


def reveals_proxy(name: str) -> bool:
    """Return whether a header of this lower-case name reveals a proxy."""
    return name in PROXY_FIELDS or name.startswith("x-forwarded")


def canonical_ip(text: str) -> str:
    """Return an IP address in canonical form; "" if invalid. IPv4-mapped IPv6 becomes IPv4."""
    address = _parse_ip(text)
    return "" if address is None else str(address)


def network_of(text: str) -> IPv4Address | IPv6Network | None:
    """Return the part of an address that identifies its owner; None if invalid."""
    address = _parse_ip(text)
    if isinstance(address, IPv6Address):
        return IPv6Network((int(address), IPV6_NETWORK_BITS), strict=False)
    return address


def addresses_in(values: Iterable[str]) -> Iterator[str]:
    """Yield all IP addresses in canonical form."""
    for value in values:
        for found in ADDRESSES.findall(value[:VALUE_MAX]):
            for text in _candidates(found):
                if address := canonical_ip(text):
                    yield address


def exit_ip(*seen: SeenRequest) -> str:
    """Return the exit address; "" if the requests had different ones."""
    found = {canonical_ip(each.address) for each in seen}
    return found.pop() if len(found) == 1 else ""


def _compared(seen: SeenRequest) -> dict[str, str]:
    return {name: value for name, value in seen.fields if name not in {"host", "connection"}}


def _candidates(text: str) -> Iterator[str]:
    yield text
    yield text.strip(".:")
    if port := PORT_OF_V4.fullmatch(text):
        yield port[1]


def _parse_ip(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
