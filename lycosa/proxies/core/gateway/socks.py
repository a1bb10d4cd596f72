"""SOCKS 5 on the server's side (RFC 1928), with user names and passwords (RFC 1929).

Each reader takes the bytes received so far, and returns the message and its size, or None while it is incomplete.
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

SUCCEEDED, FAILED, NOT_ALLOWED, UNREACHABLE, NOT_SUPPORTED = 0, 1, 2, 4, 7
REASONS = {
    1: "general failure", 2: "not allowed", 3: "network unreachable", 4: "host unreachable", 5: "connection refused",
    6: "TTL expired", 7: "command not supported", 8: "address type not supported",
}  # fmt: skip
"""RFC 1928 §6."""


class Login(NamedTuple):
    """A user name and password."""

    user: str
    password: str


def read_methods(data: bytes) -> tuple[bytes, int] | None:
    """Read the authentication methods that the client supports."""
    if len(data) < 2 or len(data) < 2 + data[1]:
        return None
    return bytes(data[2 : 2 + data[1]]), 2 + data[1]


def read_login(data: bytes) -> tuple[Login, int] | None:
    """Read user name and password. Raises `BadMessage`."""
    if data and data[0] != LOGIN_VERSION:
        raise BadMessage("not a login by RFC 1929")
    if len(data) < 2 or len(data) < 3 + data[1]:
        return None
    user_end = 2 + data[1]
    end = user_end + 1 + data[user_end]
    if len(data) < end:
        return None
    user, password = data[2:user_end], data[user_end + 1 : end]
    return Login(bytes(user).decode("utf-8", "replace"), bytes(password).decode("utf-8", "replace")), end


def read_request(data: bytes) -> tuple[tuple[int, Destination], int] | None:
    """Read command and destination. Raises `BadMessage`."""
    if len(data) < 5:
        return None
    if data[0] != VERSION or data[2] or data[3] not in (IPV4, NAME, IPV6):
        raise BadMessage("not a SOCKS 5 request")
    kind = data[3]  # a name starts with its length
    start = 5 if kind == NAME else 4
    end = start + {IPV4: 4, IPV6: 16, NAME: data[4]}[kind]
    if len(data) < end + 2:
        return None
    address, port = bytes(data[start:end]), int.from_bytes(data[end : end + 2])
    if kind == IPV4:
        address = str(IPv4Address(address)).encode()  # as text: one parser checks all destinations
    elif kind == IPV6:
        address = f"[{IPv6Address(address)}]".encode()
    return (data[1], parse_authority(address + b":%d" % port)), end + 2


def encode_reply(code: int) -> bytes:
    """Return the reply to a request, with the address 0.0.0.0:0 to hide our own."""
    return bytes((VERSION, code, 0, IPV4, 0, 0, 0, 0, 0, 0))
