"""What an errback gets to see: why a request failed."""

from __future__ import annotations

from typing import Any

from lycosa.core.model import Request
from lycosa.engine.response import Response


class Failure:
    """`value` is the exception, or the response that ended it."""

    def __init__(self, value: Any, request: Request, response: Response | None = None) -> None:
        self.value = value
        self.request = request
        self.response = response
