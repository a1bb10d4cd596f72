"""SOCKS 5 as a server hears it (RFC 1928), with its user names and passwords (RFC 1929): bytes in, values out.

Each reader takes what has come so far, and returns the message with its length, or None while it is not whole.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import NamedTuple

from lycosa.core.errors import BadMessage
from lycosa.http.core.destination import Destination, parse_authority

VERSION, LOGIN_VERSION = 5, 1
NO_LOGIN, LOGIN, NO_METHOD = 0, 2, 0xFF
CONNECT = 1
IPV4, NAME, IPV6 = 1, 3, 4
MESSAGE_MAX = 513
"""Bytes of the longest message, a login."""

DONE, FAILED, NOT_ALLOWED, UNREACHABLE, NOT_SUPPORTED = 0, 1, 2, 4, 7
REASONS = {
    1: "general failure", 2: "not allowed", 3: "network unreachable", 4: "host unreachable", 5: "connection refused",
    6: "TTL expired", 7: "command not supported", 8: "address type not supported",
}  # fmt: skip
"""What a reply says, other than that it is done (RFC 1928 §6)."""


class Login(NamedTuple):
    """User name and password."""

    user: str
    password: str


def read_methods(data: bytes) -> tuple[bytes, int] | None:
    """Read the greeting: the ways to log in that the client knows."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        return None
    return bytes(data[2 : 2 + data[1]]), 2 + data[1]


def read_login(data: bytes) -> tuple[Login, int] | None:
    """Read user name and password. Raises `BadMessage`."""
    if data and data[0] != LOGIN_VERSION:
        raise BadMessage("not a login of RFC 1929")
    if len(data) < 2 or len(data) < 3 + data[1]:
        return None
    behind_user = 2 + data[1]
    end = behind_user + 1 + data[behind_user]
    if len(data) < end:
        return None
    user, password = data[2:behind_user], data[behind_user + 1 : end]
    return Login(bytes(user).decode("utf-8", "replace"), bytes(password).decode("utf-8", "replace")), end


def read_request(data: bytes) -> tuple[tuple[int, Destination], int] | None:
    """Read command and destination. Raises `BadMessage`."""
    if len(data) < 5:
        return None
    if data[0] != VERSION or data[2] or data[3] not in (IPV4, NAME, IPV6):
        raise BadMessage("not a request of SOCKS 5")
    kind = data[3]
    begin = 5 if kind == NAME else 4
    end = begin + {IPV4: 4, IPV6: 16, NAME: data[4]}[kind]
    if len(data) < end + 2:
        return None
    port = int.from_bytes(data[end : end + 2])
    return (data[1], _destination(kind, bytes(data[begin:end]), port)), end + 2


def reply(code: int) -> bytes:
    """Return the answer to a request. The address we connect from is nobody's business: 0.0.0.0:0."""
    return bytes((VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0))


def _destination(kind: int, address: bytes, port: int) -> Destination:
    if kind == NAME:
        return parse_authority(address + b":%d" % port)
    ip = str(IPv4Address(address)) if kind == IPV4 else f"[{IPv6Address(address)}]"
    return parse_authority(f"{ip}:{port}".encode())
