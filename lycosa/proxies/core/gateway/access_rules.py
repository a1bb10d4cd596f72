"""Whether a client of the gateway may go where it wants to.

Names are another matter than addresses: who connects in the end, the upstream proxy, finds the address of a name
itself. `Names` says what is done about that.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lycosa.core.addresses import looks_private
from lycosa.core.errors import Forbidden, UsageError
from lycosa.http.core.destination import Destination
from lycosa.http.core.private_addresses import AllowedPrivate

PORTS = "80,443,1024-65535"
"""Where clients may connect to: the web, and what needs no privileges. Mail, above all, is left out."""


class Names(StrEnum):
    """What is done about names, whose addresses the upstream proxies find for themselves.

    check   we look them up, too, and refuse those that lead to an address that is not public
    pin     as check, and the proxy is given the address that was looked at: it cannot find another one
    trust   nothing: proxies are elsewhere, and their networks are nothing to us
    """

    CHECK = "check"
    PIN = "pin"
    TRUST = "trust"


@dataclass(frozen=True, slots=True)
class Reach:
    """Who may connect where: `ports`, and addresses that are public or `allowed`."""

    ports: Sequence[range] = field(default_factory=lambda: parse_ports(PORTS))
    allowed: AllowedPrivate = field(default_factory=lambda: AllowedPrivate(()))
    names: Names = Names.CHECK

    def check(self, to: Destination) -> None:
        """Raise `Forbidden` for what needs no look-up to be refused."""
        if not any(to.port in each for each in self.ports):
            raise Forbidden(f"port {to.port} is not open here (--ports)")
        if looks_private(to.host) and not self.allowed.is_named(to.host) and not self.allowed.may_connect(to.host):
            raise Forbidden(f"{to.host} is a private address (--allow-private)")

    def is_looked_up(self, to: Destination) -> bool:
        """Whether the addresses of a host have to be known before anybody connects to it."""
        if to.is_address or self.names is Names.TRUST:
            return False
        return self.names is Names.PIN or not self.allowed.is_named(to.host)

    def check_addresses(self, to: Destination, addresses: Iterable[str]) -> None:
        """Raise `Forbidden` when one of the addresses of a host is private: which one is used nobody knows."""
        if not self.allowed.is_named(to.host) and not all(map(self.allowed.may_connect, addresses)):
            raise Forbidden(f"{to.host} leads to a private address (--allow-private)")


def parse_ports(text: str) -> tuple[range, ...]:
    """Return the ports of a list such as `80,443,8000-9000`. Raises `UsageError`."""
    found = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= first <= last <= 65_535:
            raise UsageError(f"--ports {part[:40]!r}: write ports such as {PORTS}")
        found.append(range(first, last + 1))
    return tuple(found)
