"""The nodes through which a node joins the network: given by the user, or the public routers on request."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence

from lycosa.core.errors import LycosaError, UsageError
from lycosa.dht.udp import pack_address

DEFAULT = "default"
"""Written in place of HOST:PORT: the public routers."""
PUBLIC_ROUTERS = (
    "router.bittorrent.com:6881",
    "router.utorrent.com:6881",
    "dht.libtorrent.org:25401",
    "dht.transmissionbt.com:6881",
)
"""Long-lived nodes of the makers of clients. They are asked while a node has no contacts, and never stored."""
RESOLVE_TIMEOUT_S = 10.0


async def resolve(written: Iterable[str]) -> list[bytes]:
    """Return the endpoints of HOST:PORT texts, of both address families. DEFAULT is skipped.

    Raises `UsageError` for another form, `LycosaError` if none of the names has an address.
    """
    names = [_parse(each) for each in written if each != DEFAULT]
    found = await asyncio.gather(*(_addresses(host, port) for host, port in names))
    endpoints = list(dict.fromkeys(endpoint for each in found for endpoint in each))
    if names and not endpoints:
        raise LycosaError(f"--bootstrap: no address for {', '.join(host for host, _ in names)}: is the network up?")
    return endpoints


def _parse(written: str) -> tuple[str, int]:
    host, _, port = written.rpartition(":")
    if not (host and port.isascii() and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise UsageError(f"--bootstrap {written}: write HOST:PORT, such as 192.0.2.1:6881, or {DEFAULT}")
    return host.strip("[]"), int(port)


async def _addresses(host: str, port: int) -> Sequence[bytes]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, TimeoutError):
        return ()
    return [pack_address(address) for *_, address in rows]
