"""What the pages of all sites share.

A site's own templates are next to its code, and take precedence over shared ones of the same name.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any

import jinja2

from lycosa.infra.web.http_server import ServerResponse
from lycosa.infra.web.small_site import Pages

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; form-action 'self'; "
        "connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}
_ENCODED_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

HERE = Path(__file__).parent
STATIC = HERE / "static"
TEMPLATES = HERE / "templates"

TYPES = {".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def static_pages(*names: str) -> Pages:
    """Return files of STATIC as pages below /static/."""
    return {
        f"/static/{name}": partial(_static_file, (STATIC / name).read_bytes(), TYPES[Path(name).suffix])
        for name in names
    }


async def _static_file(content: bytes, content_type: str, _query: str) -> ServerResponse:
    return ServerResponse(200, content, {"content-type": content_type, "cache-control": "no-cache"})


def page_templates(folder: Path) -> jinja2.Environment:
    """Load templates from `folder`, then the shared ones. All values are escaped."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader([folder, TEMPLATES]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )


class SecurityHeaders:
    """ASGI middleware that adds `HEADERS` to every response that lacks them."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and _ENCODED_HEADERS[0] not in message["headers"]:
                message["headers"] = [*message["headers"], *_ENCODED_HEADERS]
            await send(message)

        await self._app(scope, receive, send_with_headers)
