"""Sets options from the meta of a request on the libcurl handle of its transfer. Raises `ValueError` or `TypeError`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import pycurl

TIMEOUT_MAX_S = 86_400.0
PORT_MAX = 65_535
PROXY_ONLY_FIELD = "proxy-authorization"

PER_REQUEST = frozenset({"proxy", "download_timeout", "bindaddress", "download_fail_on_dataloss"})
"""Keys of `meta` that change the options of a handle, besides `download_maxsize`."""


def body_max(meta: object, default: int) -> int:
    """Return the maximum body size in bytes. `meta` is a `download_maxsize`: 0 for no limit, None for `default`."""
    if meta is None:
        return default
    if not isinstance(meta, int) or isinstance(meta, bool) or meta < 0:
        raise ValueError(f"download_maxsize {meta!r}: write bytes, 0 for no limit")
    return meta or sys.maxsize


def timeout_s(value: Any) -> float:
    """Return a checked `download_timeout`."""
    seconds = float(value)
    if not 0 < seconds <= TIMEOUT_MAX_S:
        raise ValueError(f"download_timeout {value!r}: write seconds, more than 0 and at most {TIMEOUT_MAX_S:.0f}")
    return seconds


def set_bind_address(curl: pycurl.Curl, value: Any) -> None:
    """Connect from this local address: an IP address, or a pair of an IP address and a port."""
    address, port = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, 0)
    try:
        curl.setopt(pycurl.INTERFACE, f"host!{ip_address(address)}")
    except ValueError:
        raise ValueError(f"bindaddress {value!r}: write an IP address of this machine") from None
    if not isinstance(port, int) or not 0 <= port <= PORT_MAX:
        raise ValueError(f"bindaddress {value!r}: write a port from 0 to {PORT_MAX}")
    if port:
        curl.setopt(pycurl.LOCALPORT, port)


def set_proxy(curl: pycurl.Curl, proxy: str, headers: Mapping[str, str]) -> None:
    """Use this proxy ("" for none). The last Proxy-Authorization in `headers` is sent to the proxy, not to the host."""
    curl.setopt(pycurl.PROXY, proxy)
    secrets = [value for name, value in headers.items() if name.lower() == PROXY_ONLY_FIELD] if proxy else []
    if any(char in "\r\n\0" for value in secrets for char in value):
        raise ValueError("the value of Proxy-Authorization contains a line break or NUL")
    curl.unsetopt(pycurl.PROXYHEADER)  # an empty list would not replace the previous one
    if secrets:
        curl.setopt(pycurl.PROXYHEADER, [f"Proxy-Authorization: {secrets[-1]}"])


def for_hosts(headers: Mapping[str, str]) -> Mapping[str, str]:
    """Return the header fields without Proxy-Authorization."""
    return {name: value for name, value in headers.items() if name.lower() != PROXY_ONLY_FIELD}


@lru_cache(1024)
def to_address(address: str) -> str:
    """Return a CURLOPT_CONNECT_TO entry: connect to this address for any host, on the same port."""
    try:
        ip = ip_address(address)
    except ValueError:
        raise ValueError(f"{address!r} is not an IP address to connect to") from None
    return f"::[{ip}]:" if ip.version == 6 else f"::{ip}:"
