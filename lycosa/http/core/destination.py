"""A host and a port, as CONNECT, SOCKS and the authority of a URL name them.

A host is taken as browsers read it (WHATWG): `0x7f.1` is 127.0.0.1, and goes on as that, so that nobody behind us reads
another host than the one that was looked at.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

import ada_url

from lycosa.core.errors import BadMessage

AUTHORITIES_MAX = 4_096
"""Hosts whose reading is remembered."""

HOST_MAX = 255
AUTHORITY = re.compile(
    rb"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\x00-\x20\x7f:@/?#\\\[\]%%]{1,%d})(?::(?P<port>[0-9]{1,5}))?" % HOST_MAX
)


class Destination(NamedTuple):
    """A host, an IPv6 address without brackets, and a port."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """HOST:PORT as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def shown(self, default: int) -> bytes:
        """The same, without the port that is meant anyway."""
        authority = self.authority
        return (authority.rpartition(":")[0] if self.port == default else authority).encode()

    @property
    def is_address(self) -> bool:
        """Whether the host is an IP address."""
        return is_address(self.host)


@lru_cache(AUTHORITIES_MAX)
def parse_authority(text: bytes, default: int = 0) -> Destination:
    """Return the destination that HOST:PORT means; without a port the `default`, if there is one.

    Raises `BadMessage`.
    """
    found = AUTHORITY.fullmatch(text)
    if found is None or not (found["port"] or default):
        raise BadMessage("the host is not HOST:PORT")
    port = int(found["port"] or default)
    if not 1 <= port <= 65_535:
        raise BadMessage("the port is not 1 to 65535")
    try:
        host = str(ada_url.URL(f"http://{found['host'].decode()}/").hostname)
    except ValueError:
        raise BadMessage("the host is no host of a URL") from None
    return Destination(host.strip("[]"), port)


@lru_cache(AUTHORITIES_MAX)
def is_address(host: str) -> bool:
    """Whether a host is an IP address, and no name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
