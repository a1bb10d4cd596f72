"""The destinations to which clients of the gateway may connect: allowed ports, no private addresses.

A proxy resolves names itself, and may get other addresses than the gateway: hence `NamePolicy`.
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

DEFAULT_PORTS = "80,443,1024-65535"
"""Web ports and unprivileged ports: no mail, no SSH."""


class NamePolicy(StrEnum):
    """What the gateway does with a host name.

    check   resolve it, and refuse it if any address is private
    pin     like check, then send the proxy the address instead of the name, so that it can use no other address
    trust   do not check it: for proxies in other networks, whose private addresses need no protection
    """

    CHECK = "check"
    PIN = "pin"
    TRUST = "trust"


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The allowed destinations: `ports`, and addresses that are public or `allowed`."""

    ports: Sequence[range] = field(default_factory=lambda: parse_ports(DEFAULT_PORTS))
    allowed: AllowedPrivate = field(default_factory=lambda: AllowedPrivate(()))
    names: NamePolicy = NamePolicy.CHECK

    def check(self, to: Destination) -> None:
        """Raise `Forbidden` for a destination that can be refused without resolving its name."""
        if not any(to.port in each for each in self.ports):
            raise Forbidden(f"port {to.port} is not allowed (--ports)")
        if looks_private(to.host) and not self.allowed.is_named(to.host) and not self.allowed.may_connect(to.host):
            raise Forbidden(f"{to.host} is a private address (--allow-private)")

    def must_resolve(self, to: Destination) -> bool:
        """Return whether the host must be resolved and checked first."""
        if to.is_address or self.names is NamePolicy.TRUST:
            return False
        return self.names is NamePolicy.PIN or not self.allowed.is_named(to.host)

    def check_addresses(self, to: Destination, addresses: Iterable[str]) -> None:
        """Raise `Forbidden` if any address is private: the proxy may use any of them."""
        if not self.allowed.is_named(to.host) and not all(map(self.allowed.may_connect, addresses)):
            raise Forbidden(f"{to.host} resolves to a private address (--allow-private)")


def parse_ports(text: str) -> tuple[range, ...]:
    """Parse a list of ports such as `80,443,8000-9000`. Raises `UsageError`."""
    ports = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d{1,5})\s*(?:-\s*(\d{1,5})\s*)?", part, re.ASCII)
        first, last = (int(ends[1]), int(ends[2] or ends[1])) if ends else (0, 0)
        if not 1 <= first <= last <= 65_535:
            raise UsageError(f"--ports {part[:40]!r}: write ports such as {DEFAULT_PORTS}")
        ports.append(range(first, last + 1))
    return tuple(ports)
