"""Keeps what public pages lead to away from private addresses (SSRF), unless the settings allow them.

Once a visit has read a page from a public address, all that it leads to is *guarded*: links, redirects, and what is
fetched on the way. So is what comes of a guarded page, even of one that may be private. The fetcher connects for a
guarded request to public addresses only, whatever a name resolves to.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache

import msgspec

from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.http.core.private_addresses import AllowedPrivate, is_public_page

ANSWERS_MAX = 4096
"""Addresses of which is remembered whether they are public, and hosts of which whether they are allowed by name."""


class CurrentWork(msgspec.Struct):  # made in a third of the time that a class with slots takes
    """What the running task works on: a page by its lease, or a request of nobody's page. `guarded`: see above."""

    lease: Lease | None
    guarded: bool = False


current_work: ContextVar[CurrentWork | None] = ContextVar("working", default=None)
"""The work of the running task, shared with the tasks that it starts."""


def is_guarded() -> bool:
    """Return whether what the running task leads to is guarded."""
    work = current_work.get()
    return work is not None and work.guarded


class PublicOnlyGuard:
    """Decides for one spider."""

    def __init__(self, allowed: AllowedPrivate) -> None:
        self._allowed = allowed
        self._is_public = lru_cache(ANSWERS_MAX)(is_public_page)
        self._is_named = lru_cache(ANSWERS_MAX)(self._look_up)

    def has_read(self, record: UrlRecord | None, ip: str) -> None:
        """Note that the running task has read a response, of this record and from this address ("": not known)."""
        work = current_work.get()
        if work is not None and not work.guarded:
            work.guarded = self.guards(record, ip)

    def guards(self, record: UrlRecord | None, ip: str) -> bool:
        """Return whether what the page of this record, which came from this address, leads to is guarded."""
        if self._allowed.everywhere:
            return False
        return self._is_public(ip, "" if ip or record is None else name_of(record.host))

    def public_only(self, record: UrlRecord | None) -> bool:
        """Return whether the request of a record may only go to public addresses."""
        return record is not None and record.guarded and not self._is_named(record.host)

    def _look_up(self, host: str) -> bool:
        return self._allowed.is_named(name_of(host))


NO_GUARD = PublicOnlyGuard(AllowedPrivate(["*"]))
"""Guards nothing."""


def name_of(host: str) -> str:
    """Return the name in a host key: `[::1]` for `http://[::1]:80`."""
    return host.partition("://")[2].rpartition(":")[0]
