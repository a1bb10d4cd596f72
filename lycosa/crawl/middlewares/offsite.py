"""Leaves out what the scope of the crawl has not, although it is queued: it was queued under other settings, perhaps.

Links are checked when they are found; start requests are always in scope. `allow_offsite` in meta lets a request go to
any host; its depth and the globs count all the same.
"""

from __future__ import annotations

from lycosa.crawl.engine.verdict import Ignored
from lycosa.frontier.core.scope import Scope
from lycosa.http.core.request import Request

ALLOW_OFFSITE = "allow_offsite"
"""The key of `meta` of a request that may leave the hosts of its crawl, and so may what it is redirected to."""


class Offsite:
    """See the module."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def process_request(self, request: Request) -> Ignored | None:
        """Return None for a request in scope."""
        record = request.record
        if record is None or record.depth == 0:
            return None
        reason = self._scope.reason(
            record.url, record.host, record.depth, anywhere=bool(request.get_meta(ALLOW_OFFSITE))
        )
        return Ignored(reason, contacted=False) if reason else None
