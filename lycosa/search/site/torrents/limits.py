"""Limits the requests of each client. Addresses are kept in memory only, until their allowance is full again."""

from __future__ import annotations

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

CLIENTS_MAX = 20_000
"""Clients that are remembered: beyond, the longest unseen one is forgotten."""
IPV6_PREFIX = 64
"""A customer has a network of this size: its addresses are one client."""

LOOPBACKS = {"127.0.0.1", "::/64"}
"""The clients on this machine, among them proxies that do not say for whom they ask."""


class RequestLimit:
    """Allows each client `burst` requests at once, and `per_minute` on average."""

    def __init__(self, per_minute: float, burst: int, now: Callable[[], float]) -> None:
        self._per_s = per_minute / 60
        self._burst = burst
        self._now = now
        self._clients: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, client: str) -> float:
        """Count a request. Return 0 if it is allowed, else in how many seconds the next one is."""
        now = self._now()
        left, at = self._clients.pop(client, (float(self._burst), now))
        left = min(self._burst, left + (now - at) * self._per_s)
        allowed = left >= 1
        self._clients[client] = (left - allowed, now)
        if len(self._clients) > CLIENTS_MAX:
            self._clients.popitem(last=False)
        return 0.0 if allowed else (1 - left) / self._per_s


def client_of(request: Request) -> str:
    """Return the client of a request: an IPv4 address or an IPv6 network."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], IPV6_PREFIX), strict=False))


def too_many(wait_s: float) -> Response:
    """Return the answer to a request that is not allowed yet."""
    seconds = int(wait_s) + 1
    text = f"Too many requests: try again in {seconds} s.\n"
    return PlainTextResponse(text, 429, {"retry-after": str(seconds), "cache-control": "no-store"})


class ClientLimit:
    """ASGI middleware that limits the requests of each client of another machine, except below the path `free`."""

    def __init__(self, app: ASGIApp, per_minute: float, burst: int, free: str) -> None:
        self._app, self._free = app, free
        self._limit = RequestLimit(per_minute, burst, time.monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not scope["path"].startswith(self._free):
            client = client_of(Request(scope))
            if client not in LOOPBACKS and (wait_s := self._limit.wait_s(client)):
                app = too_many(wait_s)
        await app(scope, receive, send)
