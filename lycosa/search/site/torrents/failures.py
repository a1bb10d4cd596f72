"""The responses to failed requests: a page of the site for people, {"error": "one line"} for programs.

Failures inside the site are logged. Visitors see no paths and no server addresses.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lycosa.infra.web.pages import HEADERS
from lycosa.search.site.failure_texts import TEXTS
from lycosa.search.site.torrents.pages import TorrentPages

LOGGED_EVERY_S = 60.0
FOR_PROGRAMS = ("/api/", "/search.", "/torznab/", "/suggest", "/healthz")

_log = logging.getLogger(__name__)


class Failures:
    """Exception handlers of the site."""

    def __init__(self, pages: TorrentPages, base: str) -> None:
        self._pages, self._base = pages, base
        self._logged, self._logged_at = "", -math.inf

    def http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return self._answer(request, error.status_code, error.headers)

    def failure(self, request: Request, error: Exception) -> Response:
        """Respond if the index or the store fails."""
        self.log(error)
        return self._answer(request, 503, {"retry-after": "60"})

    def crash(self, request: Request, _error: Exception) -> Response:
        """Respond to a bug; Starlette logs the traceback. The response bypasses the middleware that adds HEADERS."""
        return self._answer(request, 500, HEADERS)

    def too_many(self, request: Request, wait_s: float) -> Response:
        """Respond to a client that must wait `wait_s` seconds."""
        seconds = int(wait_s) + 1
        return self._answer(request, 429, {"retry-after": str(seconds), "cache-control": "no-store"}, seconds=seconds)

    def log(self, error: Exception) -> None:
        """Log a failure, but not the same failure again within LOGGED_EVERY_S."""
        text, now = str(error), time.monotonic()
        if text != self._logged or now >= self._logged_at + LOGGED_EVERY_S:
            self._logged, self._logged_at = text, now
            _log.error("%s", text)

    def _answer(
        self, request: Request, status: int, headers: Mapping[str, str] | None = None, **values: int
    ) -> Response:
        texts = TEXTS.get(status, TEXTS[404])
        path = request.url.path.removeprefix(self._base)
        if path.startswith(FOR_PROGRAMS) or path.endswith(".json"):
            response: Response = JSONResponse({"error": texts.line.format(**values)}, status)
        else:
            response = self._pages.message(request, status, texts.heading, texts.text, **values)
        response.headers.update(headers or {})
        return response
