"""Which HTTP statuses besides 2xx go to the callback, as in Scrapy.

`handle_httpstatus_list` of a request overrides that of the spider, which overrides the settings. A redirect is not
followed if the spider or the request lists its status; a list in the settings does not stop it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lycosa.http.core.request import Request


@dataclass(frozen=True, slots=True)
class HandledStatuses:
    """`listed`: the spider's list, or None. `allowed`: the statuses that the settings allow; `all`: they allow all."""

    listed: Collection[int] | None = None
    allowed: Collection[int] = ()
    all: bool = False

    def is_handled(self, request: Request, status: int) -> bool:
        if request.get_meta("handle_httpstatus_all"):
            return True
        own = request.get_meta("handle_httpstatus_list")
        if own is not None:
            return status in own
        return self.all or status in (self.allowed if self.listed is None else self.listed)

    def is_kept(self, request: Request, status: int) -> bool:
        """Whether a redirect with this status goes to the callback instead of being followed."""
        if request.get_meta("handle_httpstatus_all"):
            return True
        return status in (self.listed or ()) or status in (request.get_meta("handle_httpstatus_list") or ())
