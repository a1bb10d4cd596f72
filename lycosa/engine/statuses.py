"""Which HTTP statuses a callback wants to see, besides 2xx."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from lycosa.core.model import Request

NONE: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Statuses:
    """What the settings and the spider want (`handle_httpstatus_list`); a request's meta comes on top."""

    wanted: Collection[int] = NONE
    all: bool = False

    def handled(self, request: Request, status: int) -> bool:
        """Return whether the callback of this request is given responses with this status."""
        if self.all or status in self.wanted or request.asked("handle_httpstatus_all"):
            return True
        return status in (request.asked("handle_httpstatus_list") or ())
