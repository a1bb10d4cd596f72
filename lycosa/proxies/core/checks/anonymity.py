"""How much of whoever asks shows through a proxy, by what a judge has seen of a request that came through it.

    TRANSPARENT   an address of ours is in what the judge saw, as where it came from or in a field
    ANONYMOUS     none is, but fields say that there is a proxy, or differ from those of a request without one
    ELITE         the request looks like one without a proxy, from another address

Addresses compare in their canonical form, whatever a proxy made of them: IPv6 in its many spellings, IPv4 mapped into
it, quotes, brackets and ports of Forwarded (RFC 7239 §6). Of IPv6 the /64 is compared: that is one household, whose
machines change the rest by themselves (RFC 8981).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

VALUE_MAX = 4096
"""Characters of a field in which addresses are looked for."""

ADDRESSES = re.compile(r"[0-9A-Fa-f:.]{2,60}(?:%\w{1,15})?")
PORT_OF_V4 = re.compile(r"(\d+\.\d+\.\d+\.\d+):\d{1,5}")
HOUSEHOLD = 64
"""Bits of an IPv6 address that name a network."""

BETRAYING = frozenset({
    "via", "forwarded", "proxy-connection", "proxy-authorization", "proxy-authenticate", "client-ip", "clientip",
    "true-client-ip", "cf-connecting-ip", "fastly-client-ip", "x-real-ip", "x-client-ip", "x-originating-ip",
    "x-remote-ip", "x-remote-addr", "x-cluster-client-ip", "x-bluecoat-via", "x-proxy-id", "x-proxy-connection",
    "x-proxyuser-ip", "x-imforwards", "x-via", "wl-proxy-client-ip", "max-forwards", "cdn-loop", "surrogate-capability",
})  # fmt: skip
"""Fields that proxies add, in lower case; all that begin with x-forwarded too."""


class Anonymity(StrEnum):
    """As the table above."""

    TRANSPARENT = "transparent"
    ANONYMOUS = "anonymous"
    ELITE = "elite"

    def reaches(self, least: Anonymity) -> bool:
        """Whether this hides as much, or more."""
        order = list(Anonymity)
        return order.index(self) >= order.index(least)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a judge has seen of a request: the address it came from, and its fields, names in lower case."""

    address: str
    fields: tuple[tuple[str, str], ...] = ()
    is_tls: bool = False


def anonymity(seen: Seen, direct: Seen, own: Collection[str] = ()) -> Anonymity:
    """Return how much shows. `direct` is what the judge sees without a proxy; `own` are further addresses of ours."""
    ours = {network for text in (direct.address, *own) if (network := household(text)) is not None}
    values = [value for name, value in seen.fields if name != "host"]
    if any(household(each) in ours for each in (seen.address, *addresses_in(values))):
        return Anonymity.TRANSPARENT
    if any(betrays(name) for name, _ in seen.fields) or _plain(seen) != _plain(direct):
        return Anonymity.ANONYMOUS
    return Anonymity.ELITE


def betrays(name: str) -> bool:
    """Whether a field of this name, in lower case, says that there is a proxy."""
    return name in BETRAYING or name.startswith("x-forwarded")


def canonical(text: str) -> str:
    """Return an IP address in its one form, IPv4 also where it was mapped into IPv6; "" for what is none."""
    address = _address(text)
    return "" if address is None else str(address)


def household(text: str) -> IPv4Address | IPv6Network | None:
    """Return what stands for whoever has this address, None for what is no address."""
    address = _address(text)
    if isinstance(address, IPv6Address):
        return IPv6Network((int(address), HOUSEHOLD), strict=False)
    return address


def addresses_in(values: Iterable[str]) -> Iterator[str]:
    """Yield all that looks like an IP address, in canonical form."""
    for value in values:
        for found in ADDRESSES.findall(value[:VALUE_MAX]):
            for text in _readings(found):
                if one := canonical(text):
                    yield one


def exit_ip(*seen: Seen) -> str:
    """Return the address a proxy comes out at, "" when requests came out at different ones."""
    found = {canonical(each.address) for each in seen}
    return found.pop() if len(found) == 1 else ""


def _plain(seen: Seen) -> dict[str, str]:
    """Return the fields by which requests are compared."""
    return {name: value for name, value in seen.fields if name not in {"host", "connection"}}


def _readings(text: str) -> Iterator[str]:
    """Yield what a text may mean: itself, and without a port, or the dots and colons of a sentence."""
    yield text
    yield text.strip(".:")
    if port := PORT_OF_V4.fullmatch(text):
        yield port[1]


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ip_address(text.strip().strip("[]").partition("%")[0])
    except ValueError:
        return None
    return address.ipv4_mapped or address if isinstance(address, IPv6Address) else address
