"""A host and a port, as in CONNECT, SOCKS and the authority of a URL.

A host is normalised as in browsers (WHATWG): `0x7f.1` becomes 127.0.0.1. It is passed on in that form, so further
proxies and servers connect to the host that was checked.
"""

from __future__ import annotations

import re
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple

import ada_url

from lycosa.core.errors import BadMessage

AUTHORITIES_MAX = 4_096

HOST_MAX = 255
AUTHORITY = re.compile(
    rb"(?P<host>\[[0-9A-Fa-f:.]+\]|[^\x00-\x20\x7f:@/?#\\\[\]%%]{1,%d})(?::(?P<port>[0-9]{1,5}))?" % HOST_MAX
)


class Destination(NamedTuple):
    """A host (an IPv6 address without brackets) and a port."""

    host: str
    port: int

    @property
    def authority(self) -> str:
        """HOST:PORT as in a URL, with brackets around an IPv6 address."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def host_field(self, default_port: int) -> bytes:
        """Return the value of a Host field: the authority, without the port if it is the default."""
        authority = self.authority
        return (authority.rpartition(":")[0] if self.port == default_port else authority).encode()

    @property
    def is_address(self) -> bool:
        return is_address(self.host)


@lru_cache(AUTHORITIES_MAX)
def parse_authority(text: bytes, default: int = 0) -> Destination:
    """Parse HOST:PORT. `default` is used if there is no port; 0 makes the port required. Raises `BadMessage`."""
    found = AUTHORITY.fullmatch(text)
    if found is None or not (found["port"] or default):
        raise BadMessage("the destination is not HOST:PORT")
    port = int(found["port"] or default)
    if not 1 <= port <= 65_535:
        raise BadMessage("the port must be from 1 to 65535")
    try:
        host = str(ada_url.URL(f"http://{found['host'].decode()}/").hostname)
    except ValueError:
        raise BadMessage("the host is not valid in a URL") from None
    return Destination(host.strip("[]"), port)


@lru_cache(AUTHORITIES_MAX)
def is_address(host: str) -> bool:
    """Whether a host is an IP address rather than a name."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
