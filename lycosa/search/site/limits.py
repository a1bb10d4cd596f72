"""Limits the requests of each client. At most CLIENTS_MAX client addresses are kept, only in memory."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from lycosa.core.rate_limit import RateLimit

CLIENTS_MAX = 20_000
PER_MINUTE, BURST = 240.0, 120
"""Requests that a client on another machine may send to a site: on average, and at once."""
IPV6_PREFIX = 64
"""Prefix length of the network that providers give a customer. All its addresses count as one client."""

LOOPBACKS = {"127.0.0.1", "::/64"}
"""The clients on this machine, which `ClientLimit` does not limit: one may be a reverse proxy that hides the addresses
of all its visitors."""

TooMany = Callable[[Request, float], Response]
"""Responds to a request over the limit. The float is the seconds to wait."""


class RequestLimit:
    """Allows each client `burst` requests at once, and `per_minute` on average."""

    def __init__(self, per_minute: float, burst: int, now: Callable[[], float] = time.monotonic) -> None:
        self._limit = RateLimit[str](per_minute / 60, burst, keys_max=CLIENTS_MAX)
        self._now = now

    def wait_s(self, client: str) -> float:
        """Count a request. Return 0 if it is allowed, else the seconds to wait."""
        now = self._now()
        return 0.0 if self._limit.allow(client, now) else max(self._limit.ready_at(client, now) - now, 0.001)

    def put_back(self, client: str) -> None:
        """Undo the count of an allowed request."""
        self._limit.put_back(client)


def client_of(request: Request) -> str:
    """Return the client of a request: an IPv4 address or an IPv6 network."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    if address.ipv4_mapped:  # from a reverse proxy that listens for both IPv4 and IPv6
        return str(address.ipv4_mapped)
    return str(ipaddress.ip_network((host.partition("%")[0], IPV6_PREFIX), strict=False))


class ClientLimit:
    """ASGI middleware that limits the requests of each client on another machine, except below the path `free`."""

    def __init__(self, app: ASGIApp, per_minute: float, burst: int, free: str, too_many: TooMany) -> None:
        self._app, self._free, self._too_many = app, free, too_many
        self._limit = RequestLimit(per_minute, burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and not scope["path"].startswith(self._free):
            request = Request(scope)
            client = client_of(request)
            if client not in LOOPBACKS and (wait_s := self._limit.wait_s(client)):
                app = self._too_many(request, wait_s)
        await app(scope, receive, send)
