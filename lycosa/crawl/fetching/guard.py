"""Keeps requests that public pages lead to away from private addresses (SSRF), unless the settings allow them.

Once a visit has read a page from a public address, all that it leads to is *guarded*: links, redirects and inline
fetches. So is all that a guarded page leads to, even one with a private address. For a guarded request the fetcher
connects to public addresses only, whatever a name resolves to.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache

import msgspec

from lycosa.core.url import host_name
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.http.core.private_addresses import AllowedPrivate, is_public_page

ANSWERS_MAX = 4096
"""Cached answers: addresses that are public or not, and hosts that are allowed by name or not."""


class CurrentWork(msgspec.Struct):  # created for each page; three times as fast as a class with slots
    """What the running task works on: the page of a lease, or (None) a request outside any page."""

    lease: Lease | None
    guarded: bool = False


current_work: ContextVar[CurrentWork | None] = ContextVar("current_work", default=None)
"""The work of the running task, inherited by the tasks that it starts."""


def is_guarded() -> bool:
    """Return whether requests that the running task makes are guarded."""
    work = current_work.get()
    return work is not None and work.guarded


class PublicOnlyGuard:
    """Decides which requests of one spider are guarded. `allowed` are the exceptions of the settings."""

    def __init__(self, allowed: AllowedPrivate) -> None:
        self._allowed = allowed
        self._is_public = lru_cache(ANSWERS_MAX)(is_public_page)
        self._is_allowed = lru_cache(ANSWERS_MAX)(self._is_allowed_by_name)

    def note_response(self, record: UrlRecord | None, ip: str) -> None:
        """Note that the running task has read a response of this record from this IP address ("": not known)."""
        work = current_work.get()
        if work is not None and not work.guarded:
            work.guarded = self.leads_guarded(record, ip)

    def leads_guarded(self, record: UrlRecord | None, ip: str) -> bool:
        """Return whether the page of this record, read from this address, leads to guarded requests."""
        if self._allowed.everywhere:
            return False
        return self._is_public(ip, "" if ip or record is None else host_name(record.host))

    def public_only(self, record: UrlRecord | None) -> bool:
        """Return whether the request of a record may go to public addresses only."""
        return record is not None and record.guarded and not self._is_allowed(record.host)

    def _is_allowed_by_name(self, host: str) -> bool:
        return self._allowed.is_named(host_name(host))


NO_GUARD = PublicOnlyGuard(AllowedPrivate(["*"]))
"""Guards nothing."""
