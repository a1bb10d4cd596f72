"""Finds the nodes through which our node joins the network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Sequence
from pathlib import Path

from lycosa.core.errors import LycosaError, UsageError
from lycosa.dht.core.endpoints import AllowedNetworks, is_contactable, port_number, text
from lycosa.dht.core.torrent_file import Node, TorrentFile, read_torrent_file
from lycosa.dht.udp import pack_address

DEFAULT = "default"
PUBLIC_ROUTERS = (
    ("router.bittorrent.com", 6881),
    ("router.utorrent.com", 6881),
    ("dht.libtorrent.org", 25401),
    ("dht.transmissionbt.com", 6881),
)
"""Long-lived nodes run by developers of BitTorrent clients. They are queried while we have few contacts, and never
stored."""
TORRENT = ".torrent"
TORRENT_BYTES_MAX = 64 << 20
RESOLVE_TIMEOUT_S = 10.0


async def find_bootstrap(written: Iterable[str], allowed: AllowedNetworks) -> list[bytes]:
    """Return the endpoints of nodes given as HOST:PORT or as a torrent file that lists nodes. DEFAULT is skipped.

    Raises `UsageError` for any other form, for a torrent file that cannot be read or lists no nodes, and for a HOST
    whose address is neither public nor allowed; `LycosaError` if no address is left.
    """
    names = [each for each in written if each != DEFAULT]
    found: list[bytes] = []
    for name in names:
        if name.endswith(TORRENT):
            # The author of the file could name private addresses in the user's network.
            found += [each for each in await resolve(_load_nodes(name)) if is_contactable(each, allowed)]
            continue
        endpoints = await resolve([parse_node(name)])
        for endpoint in endpoints:
            if not is_contactable(endpoint, allowed):
                raise UsageError(f"--bootstrap {name}: {text(endpoint)} is not public: {_advice(endpoint)}")
        found += endpoints
    if names and not found:
        raise LycosaError(f"--bootstrap {' '.join(names)}: no usable address; is the name right, and the network up?")
    return list(dict.fromkeys(found))


async def find_routers(allowed: AllowedNetworks) -> list[bytes]:
    """Return the endpoints of the public routers. Raises `LycosaError` if none has a public address.

    A name server may block the routers: it answers with 0.0.0.0 or a local address.
    """
    found = [each for each in await resolve(PUBLIC_ROUTERS) if is_contactable(each, allowed)]
    if not found:
        raise LycosaError(f"--bootstrap {DEFAULT}: no public address found for the public routers; is the network up?")
    return found


async def resolve(nodes: Iterable[Node]) -> list[bytes]:
    """Return the endpoints of hosts in both address families. Unknown hosts are skipped."""
    found = await asyncio.gather(*(_addresses(host, port) for host, port in nodes))
    return [endpoint for each in found for endpoint in each]


def parse_node(written: str) -> Node:
    """Return the host and the port of HOST:PORT. Raises `UsageError`."""
    host, _, digits = written.rpartition(":")
    try:
        port = port_number(digits)
    except ValueError:
        port = 0
    if not (host and port):
        raise UsageError(f"--bootstrap {written}: write HOST:PORT such as 192.0.2.1:6881, a torrent file, or {DEFAULT}")
    return host.strip("[]"), port


def load_torrent(name: str) -> TorrentFile:
    """Read a torrent file. Raises `UsageError`."""
    try:
        with Path(name).open("rb") as file:
            data = file.read(TORRENT_BYTES_MAX + 1)
    except OSError as error:
        raise UsageError(f"{name}: {(error.strerror or str(error)).lower()}") from None
    if len(data) > TORRENT_BYTES_MAX:
        raise UsageError(f"{name}: larger than {TORRENT_BYTES_MAX >> 20} MiB")
    try:
        return read_torrent_file(data)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _load_nodes(name: str) -> tuple[Node, ...]:
    try:
        nodes = load_torrent(name).nodes
    except UsageError as error:
        raise UsageError(f"--bootstrap {error}") from None
    if not nodes:
        raise UsageError(f"--bootstrap {name}: the torrent contains no nodes; lycosa dht torrent-nodes can add some")
    return nodes


def _advice(endpoint: bytes) -> str:
    network = (
        "127.0.0.0/8" if endpoint.startswith(b"\x7f") and len(endpoint) == 6 else text(endpoint).rpartition(":")[0]
    )
    return f"on a network of your own, add --allow-private {network.strip('[]')}"


async def _addresses(host: str, port: int) -> Sequence[bytes]:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            rows = await loop.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError, TimeoutError):
        return ()
    return [pack_address((str(address[0]), int(address[1]))) for *_, address in rows]
