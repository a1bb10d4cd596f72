"""Reserved ports: for servers whose port must be chosen in advance, and for tests that need a closed port.

A reserved port is bound by a socket that never listens. The system gives it to no other socket, connections to it are
refused, and a server that gets its number can listen there, again and again: servers set SO_REUSEADDR, as does the
socket that reserves the port.
"""

from __future__ import annotations

import errno
import socket
from typing import Self

LOOPBACK = "127.0.0.1"
LOCALHOST = (LOOPBACK, "::1")
TRIES_MAX = 100
MISSING = frozenset({errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT})


class ReservedPort:
    """A port with the same number at all these addresses, until it is closed. IPv6 is left out where it is missing."""

    def __init__(self, *addresses: str, port: int = 0) -> None:
        self._sockets: list[socket.socket] = []
        # Most ports in use are at 127.0.0.1: one that is free there is probably free at the other addresses.
        ordered = sorted(addresses or [LOOPBACK], key=lambda each: each != LOOPBACK)
        for retries_left in reversed(range(1 if port else TRIES_MAX)):
            try:
                self.number = self._bind(ordered, port)
            except OSError as error:
                self.close()
                if not retries_left or error.errno != errno.EADDRINUSE:
                    raise
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Release the port."""
        self.close()

    def close(self) -> None:
        """Release the port. A server that listens there continues."""
        while self._sockets:
            self._sockets.pop().close()

    def keep(self) -> None:
        """Reserve the port until this process ends."""
        while self._sockets:
            self._sockets.pop().detach()

    def _bind(self, addresses: list[str], port: int) -> int:
        for address in addresses:
            try:
                bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
                self._sockets.append(bound)
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind((address, port))
            except OSError as error:
                if not port or ":" not in address or error.errno not in MISSING:
                    raise
                continue
            port = bound.getsockname()[1]
        return port


def closed_port(*addresses: str) -> int:
    """Return a port that is reserved until this process ends: closed, unless a server listens there."""
    reserved = ReservedPort(*addresses)
    reserved.keep()
    return reserved.number
