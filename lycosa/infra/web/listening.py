"""Open listening TCP sockets. Other machines may connect only if clients need a password, or with --allow-remote."""

from __future__ import annotations

import errno
import os
import socket
from ipaddress import ip_address
from typing import NamedTuple

from lycosa.core.errors import StateError, UsageError

LOOPBACK = "127.0.0.1"
BACKLOG = 128


class Access(NamedTuple):
    """Whether other machines may connect to a server (`allowed`).

    `password` names what clients need ("an account"), or is "". `remedy` says how the operator can allow other
    machines.
    """

    allowed: bool
    remedy: str
    password: str = ""


def without_password(*, allow_remote: bool) -> Access:
    """Return the access to a server without a password."""
    return Access(allow_remote, "add --allow-remote")


class PortInUse(StateError):
    """Another program listens on this port."""


def open_listener(host: str, port: int, where: str, access: Access, backlog: int = BACKLOG) -> socket.socket:
    """Listen on the first address of `host`. `where` is the option with its value, for messages.

    Raises `UsageError` for an unknown host, or if other machines could connect but `access` does not allow them;
    `PortInUse`; `StateError` if the system refuses for another reason.
    """
    try:
        family, *_, resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "no such address"
        raise UsageError(f"{where}: {why.lower()}") from None
    if not access.allowed and is_remote(str(resolved[0])):
        raise UsageError(f"{where} would be open to other machines: {access.remedy}, or listen on {LOOPBACK}")
    try:
        listener = socket.create_server(resolved[:2], family=family, backlog=backlog)
    except OSError as error:
        problem = PortInUse if error.errno == errno.EADDRINUSE else StateError
        # Python's message repeats the address.
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise problem(f"{where}: cannot listen there: {reason.lower()}") from None
    # Connections inherit this option. asyncio sets it only for sockets with a protocol number, which this socket lacks.
    # Without it, a response's body waits up to 40 ms until the client acknowledges the headers.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def is_remote(address: str) -> bool:
    """Return whether other machines can reach a server at this IP address."""
    return not ip_address(address.partition("%")[0]).is_loopback


def remote_note(address: str, access: Access) -> str:
    """Say who else can connect to a server at this IP address; "" if only this machine can."""
    if not is_remote(address):
        return ""
    return f"open to other machines, {f'which need {access.password}' if access.password else 'without a password'}"


def stop_note(*notes: str, server: str = "it") -> str:
    """Join the notes that follow the address of a server."""
    return ", ".join([*filter(None, notes), f"Ctrl-C stops {server}"])


def url_of(address: tuple[str, int]) -> str:
    """Return http://ADDRESS:PORT for the local address of a socket."""
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
