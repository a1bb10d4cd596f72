"""Keeps links of public pages away from private addresses (SSRF), unless the settings allow them.

A page that came from a public address makes what it leads to *guarded*: links, redirects, and what its callbacks fetch.
The fetcher connects for a guarded request to public addresses only, whatever a name resolves to.
"""

from __future__ import annotations

from functools import lru_cache

from lycosa.core.model import UrlRecord
from lycosa.core.private import Allowed, is_public_page

ADDRESSES_MAX = 4096
"""Addresses of which is remembered whether they are public."""


class Guard:
    """`proxied`: the requests go through a proxy, whose address says nothing of a host."""

    def __init__(self, allowed: Allowed, *, proxied: bool = False) -> None:
        self._allowed = allowed
        self._proxied = proxied
        self._is_public = lru_cache(ADDRESSES_MAX)(self._look)

    def guards(self, record: UrlRecord, ip: str) -> bool:
        """Return whether what the page of this record, which came from this address, leads to is guarded."""
        if self._allowed.everywhere:
            return False
        return self._is_public(ip, "" if ip and not self._proxied else name_of(record.host))

    def public_only(self, record: UrlRecord | None) -> bool:
        """Return whether the request of a record may only go to public addresses."""
        return record is not None and record.guarded and not self._allowed.is_named(name_of(record.host))

    def _look(self, ip: str, name: str) -> bool:
        return is_public_page(ip, name, proxied=self._proxied)


OPEN = Guard(Allowed(["*"]))
"""Guards nothing."""


def name_of(host: str) -> str:
    """Return the name in a host key: `[::1]` for `http://[::1]:80`."""
    return host.partition("://")[2].rpartition(":")[0]
