"""Keep transfers away from addresses that are not public.

libcurl asks the guard before it connects a socket, and before it sends a request over a connection, new or reused. So
neither DNS rebinding (a name that resolves to another address the second time) nor a connection that another transfer
opened can bypass the guard.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import pycurl

from lycosa.core.addresses import looks_private
from lycosa.core.errors import PrivateAddress
from lycosa.http.resolver import numeric_address

MayConnect = Callable[[str], bool]
"""Whether guarded transfers may connect to an IP address."""


class AddressGuard:
    """The guard of one easy handle. `curl.reset()` removes it: call `forget` after that."""

    __slots__ = ("_curl", "_error", "_may_connect", "_opened", "_refused", "is_on")

    def __init__(self, curl: pycurl.Curl, may_connect: MayConnect) -> None:
        self._curl = curl
        self._may_connect = may_connect
        self.is_on = self._opened = False
        self._refused = ""
        self._error: Exception | None = None

    def set(self, *, on: bool) -> None:
        if on:
            self._refused, self._error, self._opened = "", None, False
        if on is self.is_on:
            return
        self.is_on = on
        if on:
            self._curl.setopt(pycurl.OPENSOCKETFUNCTION, self._open)
            self._curl.setopt(pycurl.PREREQFUNCTION, self._check)
        else:
            self._curl.unsetopt(pycurl.OPENSOCKETFUNCTION)
            self._curl.unsetopt(pycurl.PREREQFUNCTION)

    def forget(self) -> None:
        self.is_on = False

    def reason(self, code: int) -> Exception | None:
        """Return the error if the guard made a transfer fail with `code`, else None."""
        # A host may have several addresses: a refused one does not matter if another one was allowed.
        if not self.is_on or not self._refused or (self._opened and code != pycurl.E_ABORTED_BY_CALLBACK):
            return None
        return self._error or private_address(self._refused)

    def _open(self, _purpose: int, address: Any) -> Any:
        if not self._allows(address.addr[0]):
            return pycurl.SOCKET_BAD
        self._opened = True
        return _Socket(address.family, address.socktype, address.protocol)

    def _check(self, ip: str, *_: object) -> int:
        verdict: int = pycurl.PREREQFUNC_OK if self._allows(ip) else pycurl.PREREQFUNC_ABORT
        return verdict

    def _allows(self, ip: str) -> bool:
        try:
            allowed = self._may_connect(ip)
        except Exception as error:  # noqa: BLE001  `fetch` raises it
            self._error, allowed = error, False
        if not allowed:
            self._refused = ip
        return allowed


class _Socket(socket.socket):
    """pycurl duplicates this socket immediately. The original closes itself without a ResourceWarning."""

    def __del__(self) -> None:
        self.close()


def check_url(url: str, may_connect: MayConnect) -> None:
    """Raise `PrivateAddress` if the host looks private. Nothing else can be checked when a proxy resolves the name."""
    host = urlsplit(url).netloc.rpartition("@")[2]
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    numeric = numeric_address(name)
    if not may_connect(numeric) if numeric else looks_private(name):
        raise private_address(name)


def private_address(address: str) -> PrivateAddress:
    """Return the error that names the address."""
    return PrivateAddress(f"{address} is not a public address, but a public page points to it: see allow_private")
