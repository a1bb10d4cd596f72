"""Which HTTP statuses a callback wants to see, besides 2xx: as Scrapy decides it.

`handle_httpstatus_list` of a request counts instead of that of its spider, and that instead of the settings. What a
spider or request asks for is not redirected either; what only the settings let through is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lycosa.http.core.request import Request


@dataclass(frozen=True, slots=True)
class HandledStatuses:
    """`asked` is what the spider wants (None: it does not say), `allowed` what the settings let through, `all` all."""

    asked: Collection[int] | None = None
    allowed: Collection[int] = ()
    all: bool = False

    def handled(self, request: Request, status: int) -> bool:
        """Return whether the callback of this request is given responses with this status."""
        if request.asked("handle_httpstatus_all"):
            return True
        own = request.asked("handle_httpstatus_list")
        if own is not None:
            return status in own
        return self.all or status in (self.allowed if self.asked is None else self.asked)

    def kept(self, request: Request, status: int) -> bool:
        """Return whether a redirect with this status is a response like any other."""
        if request.asked("handle_httpstatus_all"):
            return True
        return status in (self.asked or ()) or status in (request.asked("handle_httpstatus_list") or ())
