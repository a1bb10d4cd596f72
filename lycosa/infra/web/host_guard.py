"""Refuse requests whose Host is not a name of this server, which prevents DNS rebinding.

A web site can make its host name resolve to 127.0.0.1. For the browser, the site and a server on this machine then have
the same origin, so the site's pages can read the server's responses. But their requests have the Host of the site.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse

from lycosa.infra.web.pages import Receive, Scope, Send

LOCAL_NAMES = frozenset({"localhost"})


class HostGuard:
    """ASGI middleware that answers 421 unless the Host is a loopback address, localhost, or one of `names`."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], names: Iterable[str] = ()) -> None:
        self._app = app
        self._names = {name.lower().rstrip(".") for name in names}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_ours(host_of(Headers(scope=scope).get("host", ""))):
            refusal = PlainTextResponse("not a name of this server: the operator can add it with --server-name\n", 421)
            return await refusal(scope, receive, send)
        return await self._app(scope, receive, send)

    def _is_ours(self, host: str) -> bool:
        return is_loopback_name(host) or host.lower().rstrip(".") in self._names


def host_of(header: str) -> str:
    """Return a Host header without its port."""
    bare, _, port = header.rpartition(":")
    return bare if bare and port.isdecimal() and not (header.startswith("[") and header.endswith("]")) else header


def is_loopback_name(host: str) -> bool:
    """Return whether an address or name, without port, is certainly this machine."""
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower().rstrip(".") in LOCAL_NAMES
