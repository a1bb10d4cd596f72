"""Keeps requests that result from public pages away from private addresses (SSRF), unless the settings allow them.

Once a visit has read a page from a public address, all requests that result from it are *guarded*: links, redirects and
inline fetches. So are all requests that result from a guarded page, even if its address is private. A guarded request
is sent only to public addresses, even if the host name resolves to a private one.
"""

from __future__ import annotations

from contextvars import ContextVar
from functools import lru_cache

import msgspec

from lycosa.core.url import host_name
from lycosa.frontier.core.model import Lease, UrlRecord
from lycosa.http.core.private_addresses import AllowedPrivate, is_public_page

ANSWERS_MAX = 4096


class CurrentWork(msgspec.Struct):  # created for each page; three times as fast as a class with slots
    """The work of the running task. `lease` is the lease of its page; None for a request without a page."""

    lease: Lease | None
    guarded: bool = False


current_work: ContextVar[CurrentWork | None] = ContextVar("current_work", default=None)
"""The work of the running task. Tasks inherit the work of the task that starts them."""


def is_guarded() -> bool:
    """Whether the requests of the running task are guarded."""
    work = current_work.get()
    return work is not None and work.guarded


class PublicOnlyGuard:
    """Decides which requests of one spider are guarded. `allowed` has the private hosts that the settings allow."""

    def __init__(self, allowed: AllowedPrivate) -> None:
        self._allowed = allowed
        self._is_public = lru_cache(ANSWERS_MAX)(is_public_page)
        self._is_allowed = lru_cache(ANSWERS_MAX)(self._is_allowed_by_name)

    def note_response(self, record: UrlRecord | None, ip: str) -> None:
        """Note that the running task has read a response of this record from `ip` ("" if unknown)."""
        work = current_work.get()
        if work is not None and not work.guarded:
            work.guarded = self.guards_requests_of(record, ip)

    def guards_requests_of(self, record: UrlRecord | None, ip: str) -> bool:
        """Whether requests that result from this page, read from `ip`, are guarded."""
        if self._allowed.everywhere:
            return False
        return self._is_public(ip, "" if ip or record is None else host_name(record.host))

    def public_only(self, record: UrlRecord | None) -> bool:
        return record is not None and record.guarded and not self._is_allowed(record.host)

    def _is_allowed_by_name(self, host: str) -> bool:
        return self._allowed.is_named(host_name(host))


NO_GUARD = PublicOnlyGuard(AllowedPrivate(["*"]))
