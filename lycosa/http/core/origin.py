"""Where a request goes, as far as cookies, credentials and referrers care: its origin, its host, what that is below.

Total: what is not an absolute http(s) URL has no place, and the origin "". Answers are remembered by origin.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import ada_url

ORIGINS_MAX = 4096
"""Origins whose answer is remembered."""


class Place(NamedTuple):
    """`origin` is without the default port: `https://example.com`. `secure`: nobody can listen in between."""

    origin: str
    host: str
    secure: bool
    is_ip: bool

    def names(self) -> Iterator[str]:
        """Yield the host, and every domain it is below."""
        name, dot = self.host, "." if not self.is_ip else ""
        yield name
        while dot:
            _, dot, name = name.partition(".")
            if dot:
                yield name


def begin_of(url: str) -> str:
    """Return an absolute URL up to its path: as much as its place depends on."""
    end = url.find("/", 8)  # behind the host
    return url[:end] if end > 0 else url


def place_of(url: str) -> Place | None:
    """Return the place of an absolute URL, None when it is not http(s), or no URL."""
    return _place(begin_of(url))


def rest_of(url: str) -> str:
    """Return path and query of an absolute URL, "/" where no slash ends the host."""
    begin = begin_of(url)
    if len(begin) == len(url) or "?" in begin or "#" in begin:
        return "/"
    return url[len(begin) :].partition("#")[0]


def path_of(url: str) -> str:
    """Return the path of an absolute URL."""
    return rest_of(url).partition("?")[0]


@lru_cache(ORIGINS_MAX)
def _place(url: str) -> Place | None:
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return None
    if parsed.protocol not in ("http:", "https:"):
        return None
    host, is_ip = str(parsed.hostname), parsed.host_type != ada_url.HostType.DEFAULT
    secure = parsed.protocol == "https:" or is_loopback(host, is_ip=is_ip)
    return Place(f"{parsed.protocol}//{parsed.host}", host, secure, is_ip)


def is_loopback(host: str, *, is_ip: bool) -> bool:
    """True for a host that is this machine, whoever is asked."""
    if is_ip:
        return host.startswith("127.") or host == "[::1]"
    return host == "localhost" or host.endswith(".localhost")
