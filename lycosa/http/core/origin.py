"""The origin of a URL: scheme, host and port; and the domains above the host.

Only an absolute http(s) URL has an origin. The functions accept any text; none of them raises.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import ada_url

ORIGINS_MAX = 4096


class Origin(NamedTuple):
    """The origin of a URL. `text` omits the default port: `https://example.com`.

    `secure`: whether the scheme is https or the host is loopback, so that nobody can eavesdrop.
    """

    text: str
    host: str
    secure: bool
    is_ip: bool

    def names(self) -> Iterator[str]:
        name, dot = self.host, "." if not self.is_ip else ""
        yield name
        while dot:
            _, dot, name = name.partition(".")
            if dot:
                yield name


def url_prefix(url: str) -> str:
    """Return the part of an absolute URL before the path. This part determines the origin."""
    end = url.find("/", 8)  # the slash after the host
    return url[:end] if end > 0 else url


def origin_of(url: str) -> Origin | None:
    """Return the origin of an absolute http(s) URL, or None."""
    return _parse(url_prefix(url))


def path_and_query_of(url: str) -> str:
    """Return path and query of an absolute URL; "/" if no slash follows the host."""
    prefix = url_prefix(url)
    if len(prefix) == len(url) or "?" in prefix or "#" in prefix:
        return "/"
    return url[len(prefix) :].partition("#")[0]


def path_of(url: str) -> str:
    """Return the path of an absolute URL."""
    return path_and_query_of(url).partition("?")[0]


@lru_cache(ORIGINS_MAX)
def _parse(url: str) -> Origin | None:
    try:
        parsed = ada_url.URL(url)
    except ValueError:
        return None
    if parsed.protocol not in ("http:", "https:"):
        return None
    host, is_ip = str(parsed.hostname), parsed.host_type != ada_url.HostType.DEFAULT
    secure = parsed.protocol == "https:" or is_loopback(host, is_ip=is_ip)
    return Origin(f"{parsed.protocol}//{parsed.host}", host, secure, is_ip)


def is_loopback(host: str, *, is_ip: bool) -> bool:
    """Whether a host is certainly this machine. Names are not looked up."""
    if is_ip:
        return host.startswith("127.") or host == "[::1]"
    return host == "localhost" or host.endswith(".localhost")
