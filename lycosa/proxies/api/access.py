"""Controls access to the API and pages of a proxy pool. Without a key, only this machine has access.

Programs send the key as `Authorization: Bearer KEY` or `X-Api-Key: KEY`, browsers as the password of HTTP Basic (RFC
7617). A browser also sends this password with requests that another site causes. Basic therefore permits reading only,
and changes are refused if Origin or Sec-Fetch-Site indicates another site. On a server without a key, the Host must be
a loopback address or localhost, which prevents DNS rebinding.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from lycosa.infra.web.host_guard import host_of, is_loopback_name
from lycosa.infra.web.pages import Receive, Scope, Send
from lycosa.proxies.api.params import json_response
from lycosa.proxies.api.schemas import ErrorResponse

PUBLIC_PATHS = frozenset({"/healthz", "/api/openapi.json", "/favicon.ico"})
SAFE_METHODS = frozenset({"GET", "HEAD"})


def wants_json(path: str) -> bool:
    """Return whether clients of this path get errors as JSON instead of pages."""
    return path.startswith("/api/") or path in ("/metrics", "/healthz")


class Guard:
    """An ASGI middleware that checks the key; "" admits only this machine."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        is_change = scope["method"] not in SAFE_METHODS
        if not self._key and not self._is_local(scope, headers):
            return _deny(
                path, 403, "the server has no key, so use it from the same machine, at a loopback address or localhost"
            )
        # Checked even with a key, because a browser sends a stored password automatically.
        if is_change and _is_cross_site(headers):
            return _deny(path, 403, "requests from another site cannot change anything here")
        if not self._key or path in PUBLIC_PATHS or path.startswith("/static/"):
            return None
        key = _request_key(headers, basic=not is_change)
        if key is not None and hmac.compare_digest(key, self._key):  # in constant time
            return None
        usage = "Authorization: Bearer KEY, or X-Api-Key: KEY"
        problem = f"a key is required: {usage}" if key is None else f"wrong key ({usage})"
        scheme = "Bearer" if wants_json(path) else 'Basic realm="proxies", charset="UTF-8"'
        return _deny(path, 401, problem, {"www-authenticate": scheme})

    def _is_local(self, scope: Scope, headers: Headers) -> bool:
        client = scope.get("client")
        return is_loopback_name(host_of(headers.get("host", ""))) and (client is None or is_loopback_name(client[0]))


def _request_key(headers: Headers, *, basic: bool) -> bytes | None:
    """Return the key in a request; None if it has none. `basic`: also accept HTTP Basic."""
    if "x-api-key" in headers:
        return headers["x-api-key"].encode()
    scheme, _, value = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return value.strip().encode()
    if scheme.lower() == "basic" and basic:
        try:
            return b64decode(value.strip(), validate=True).partition(b":")[2]
        except binascii.Error:
            return b""
    return None


def _is_cross_site(headers: Headers) -> bool:
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    if origin is None:  # not from a browser, or from the same site
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


def _deny(path: str, status: int, problem: str, headers: dict[str, str] | None = None) -> Response:
    if wants_json(path):
        return json_response(ErrorResponse(problem), status, headers)
    return PlainTextResponse(f"{problem}\n", status, headers)
