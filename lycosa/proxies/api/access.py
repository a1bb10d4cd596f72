"""Who may use the API and the pages of a proxy pool: whoever has the key; without a key, this machine.

The key comes as `Authorization: Bearer KEY` or `X-Api-Key: KEY`; for pages in a browser as the password of HTTP Basic
(RFC 7617), which is good for reading only: a browser sends it wherever another site leads it. For the same reason what
changes something is refused when it says that it comes from another site (Origin, Sec-Fetch-Site), and without a key
the Host has to be an address of this machine, so that no name that leads here (DNS rebinding) gets in.
"""

from __future__ import annotations

import binascii
import hmac
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response

from lycosa.proxies.api.schemas import ErrorResponse, encode
from lycosa.proxies.core.api_key import is_loopback

PUBLIC_PATHS = frozenset({"/healthz", "/api/openapi.json", "/favicon.ico"})
SAFE_METHODS = frozenset({"GET", "HEAD"})

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def wants_json(path: str) -> bool:
    """Whether who asks for this reads JSON, not pages."""
    return path.startswith("/api/") or path in ("/metrics", "/healthz")


class Guard:
    """An ASGI application around another one. `key` "": this machine only."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], key: str) -> None:
        self._app = app
        self._key = key.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers, path = Headers(scope=scope), scope["path"]
        is_change = scope["method"] not in SAFE_METHODS
        if not self._key and not self._is_local(scope, headers):
            return _refused(path, 403, "without a key only this machine is let in, by its address or as localhost")
        if is_change and _is_foreign(headers):
            return _refused(path, 403, "another site must not change anything here")
        if not self._key or path in PUBLIC_PATHS or path.startswith("/static/"):
            return None
        given = _given(headers, basic=not is_change)
        if given is not None and hmac.compare_digest(given, self._key):
            return None
        how = "Authorization: Bearer KEY, or X-Api-Key: KEY"
        line = f"this needs the key of the API: {how}" if given is None else f"this is not the key of the API ({how})"
        scheme = "Bearer" if wants_json(path) else 'Basic realm="proxies", charset="UTF-8"'
        return _refused(path, 401, line, {"www-authenticate": scheme})

    def _is_local(self, scope: Scope, headers: Headers) -> bool:
        client = scope.get("client")
        return is_loopback(_host(headers.get("host", ""))) and (client is None or is_loopback(client[0]))


def _given(headers: Headers, *, basic: bool) -> bytes | None:
    """Return the key of a request, None when it has none."""
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


def _is_foreign(headers: Headers) -> bool:
    """Whether a browser says that the request comes from another site."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return True
    origin = headers.get("origin")
    if origin is None:
        return False
    try:
        return urlsplit(origin).netloc.lower() != headers.get("host", "").lower()
    except ValueError:
        return True


def _host(text: str) -> str:
    """Return a Host header without its port."""
    bare, _, port = text.rpartition(":")
    return bare if bare and port.isdecimal() and not (text.startswith("[") and text.endswith("]")) else text


def _refused(path: str, status: int, line: str, more: Mapping[str, str] | None = None) -> Response:
    if wants_json(path):
        return Response(encode(ErrorResponse(line)), status, dict(more or {}), "application/json")
    return PlainTextResponse(f"{line}\n", status, dict(more or {}))
