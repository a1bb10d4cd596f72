"""What the meta of one request may ask of a transfer, in libcurl's words. Raises `ValueError` or `TypeError`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import lru_cache
from ipaddress import ip_address
from typing import Any

import pycurl

TIMEOUT_MAX_S = 86_400.0
PORT_MAX = 65_535

PER_REQUEST = frozenset({"proxy", "download_timeout", "bindaddress", "download_fail_on_dataloss"})
"""Keys of `meta` that change the options of a handle, and `download_maxsize` beside them."""


def body_max(meta: object, default: int) -> int:
    """Return the bytes that `download_maxsize` allows a body, `default` for None; 0 is no limit, as in Scrapy."""
    if meta is None:
        return default
    if not isinstance(meta, int) or isinstance(meta, bool) or meta < 0:
        raise ValueError(f"download_maxsize {meta!r}: write bytes, 0 for no limit")
    return meta or sys.maxsize


def timeout_s(value: Any) -> float:
    """Return the seconds that `download_timeout` allows a transfer."""
    seconds = float(value)
    if not 0 < seconds <= TIMEOUT_MAX_S:
        raise ValueError(f"download_timeout {value!r}: write seconds, more than 0 and at most {TIMEOUT_MAX_S:.0f}")
    return seconds


def set_bind_address(curl: pycurl.Curl, value: Any) -> None:
    """Send from this address of ours: an IP address, or a pair of one and a port."""
    address, port = value if isinstance(value, (tuple, list)) and len(value) == 2 else (value, 0)
    try:
        curl.setopt(pycurl.INTERFACE, f"host!{ip_address(address)}")
    except ValueError:
        raise ValueError(f"bindaddress {value!r}: write an IP address of this machine") from None
    if not isinstance(port, int) or not 0 <= port <= PORT_MAX:
        raise ValueError(f"bindaddress {value!r}: write a port from 0 to {PORT_MAX}")
    if port:
        curl.setopt(pycurl.LOCALPORT, port)


def set_proxy(curl: pycurl.Curl, proxy: str, headers: Mapping[str, str]) -> Mapping[str, str]:
    """Use this proxy, "" for none, and return the header fields for the host: a Proxy-Authorization is not for it."""
    curl.setopt(pycurl.PROXY, proxy)
    secret = next((name for name in headers if name.lower() == "proxy-authorization"), None)
    if secret is None:
        return headers
    if proxy:
        if any(char in "\r\n\0" for char in headers[secret]):
            raise ValueError("the value of Proxy-Authorization holds a line break")
        curl.setopt(pycurl.PROXYHEADER, [f"Proxy-Authorization: {headers[secret]}"])
    return {name: value for name, value in headers.items() if name != secret}


@lru_cache(1024)
def to_address(address: str) -> str:
    """Return libcurl's way to say: whatever host and port, connect to this address, on the same port."""
    try:
        ip = ip_address(address)
    except ValueError:
        raise ValueError(f"{address!r} is no IP address to connect to") from None
    return f"::[{ip}]:" if ip.version == 6 else f"::{ip}:"
