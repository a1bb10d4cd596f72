"""Drops queued requests that are out of scope, for example because the settings have changed.

Start requests are always in scope. `allow_offsite` in meta allows any host, but the depth limit and the URL patterns
still apply.
"""

from __future__ import annotations

from lycosa.crawl.engine.verdict import Ignored
from lycosa.frontier.core.scope import Scope
from lycosa.http.core.request import Request

ALLOW_OFFSITE = "allow_offsite"
"""The key of `meta` that allows a request, and its redirect targets, to leave the hosts of the crawl."""


class Offsite:
    """Drops requests outside `scope`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def process_request(self, request: Request) -> Ignored | None:
        record = request.record
        if record is None or record.depth == 0:
            return None
        reason = self._scope.reason(
            record.url, record.host, record.depth, anywhere=bool(request.get_meta(ALLOW_OFFSITE))
        )
        return Ignored(reason, contacted=False) if reason else None
