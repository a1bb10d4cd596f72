"""Sites that ban clients by their address, each site separately. Each site has its own address and `pages` pages:
page n links to those from 10 n + 1 to 10 n + 10, and "/" is page 0.

    async with banning(sites=2, pages=1000) as server:
        server.url("/"), server.url("/page/7", site=1)
        server.ban("127.21.0.2", BanResponse.TOO_MANY, site=0, for_s=2.0)
        server.limit = Limit(20, BanResponse.SOFT, for_s=5.0)      # clients are banned after 20 pages of a site
        server.hits, server.pages(site=0)                  # all requests; the pages that were served

A 403 has no further header, a 429 has a Retry-After unless the ban is permanent, and a soft ban is a 200 with a captcha
in place of the page. A client without a cookie gets one, `seen=<a new number>`; each of `hits` has the cookie that the
client sent. robots.txt is never refused.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from math import ceil
from typing import NamedTuple

from tests.servers.proxies import new_address

LINKS = 10
CAPTCHA = "<title>Just a moment</title><div class='g-recaptcha'></div>"
CAPTCHA_MARK = "g-recaptcha"


class BanResponse(Enum):
    """The response to a banned client."""

    FORBIDDEN = 403
    TOO_MANY = 429
    SOFT = 200
    CLOSED = 0
    """The connection is closed without a response."""


class Limit(NamedTuple):
    """After this many pages (within `within_s` seconds, if given) a client is banned for `for_s` seconds, or for
    ever.
    """

    requests: int
    response: BanResponse = BanResponse.FORBIDDEN
    for_s: float | None = None
    within_s: float | None = None


class Hit(NamedTuple):
    """One request. `at` is in monotonic seconds; `good` means that the page was served; `ip` is the client as the
    site sees it.
    """

    at: float
    site: int
    ip: str
    path: str
    status: int
    good: bool
    cookie: str
    connection: int


@dataclass(slots=True)
class ClientRecord:
    """What a site knows about a client. `until` is in monotonic seconds, and infinite for a permanent ban."""

    response: BanResponse | None = None
    until: float = 0.0
    count: int = 0
    times: deque[float] = field(default_factory=deque)


class Banning:
    """The sites of one server."""

    def __init__(
        self, sites: int, pages: int, limit: Limit | None, delay_s: float, scheme: str, address: str = ""
    ) -> None:
        self.addresses = [address or new_address() for _ in range(sites)]
        self.ports: list[int] = []
        self.page_count = pages
        self.limit = limit
        self.delay_s = delay_s
        self.robots = "User-agent: *\nAllow: /\n"
        self.hits: list[Hit] = []
        self.connections = count(1)
        self.cookies = count(1)
        self._scheme = scheme
        self._known: dict[tuple[int, str], ClientRecord] = defaultdict(ClientRecord)
        self.open: set[asyncio.Transport] = set()
        self._awaited: list[tuple[int, asyncio.Event]] = []

    def url(self, path: str = "/", site: int = 0) -> str:
        """Return the URL of a page."""
        return f"{self._scheme}://{self.addresses[site]}:{self.ports[site]}{path}"

    def ban(
        self, ip: str, response: BanResponse = BanResponse.FORBIDDEN, *, site: int = 0, for_s: float | None = None
    ) -> None:
        """Ban a client."""
        client = self._known[site, ip]
        client.response, client.until = response, time.monotonic() + (float("inf") if for_s is None else for_s)
        client.count = 0
        client.times.clear()

    def unban(self, ip: str, *, site: int = 0) -> None:
        """End the ban of a client."""
        self._known[site, ip] = ClientRecord()

    def pages(self, site: int = 0) -> Counter[str]:
        """Return how often each page was served."""
        return Counter(hit.path for hit in self.hits if hit.good and hit.site == site and hit.path != "/robots.txt")

    def by_client(self, site: int = 0) -> Counter[str]:
        """Return the number of requests from each address."""
        return Counter(hit.ip for hit in self.hits if hit.site == site)

    async def until(self, hits: int) -> None:
        """Wait until there were this many requests."""
        reached = asyncio.Event()
        self._awaited.append((hits, reached))
        await reached.wait()

    def record(self, hit: Hit) -> None:
        """Record a request."""
        self.hits.append(hit)
        for hits, reached in self._awaited:
            if len(self.hits) >= hits:
                reached.set()

    def count_request(self, site: int, ip: str, now: float) -> ClientRecord | None:
        """Count a request. Return the record of the client if it is banned."""
        client = self._known[site, ip]
        if client.response is not None and now < client.until:
            return client
        client.response = None
        client.count += 1
        limit = self.limit
        if limit is None:
            return None
        if limit.within_s is not None:
            client.times.append(now)
            while client.times[0] < now - limit.within_s:
                client.times.popleft()
            client.count = len(client.times)
        if client.count > limit.requests:
            self.ban(ip, limit.response, site=site, for_s=limit.for_s)
            return self._known[site, ip]
        return None


class SiteConnection(asyncio.Protocol):
    """A connection of a client to a site."""

    def __init__(self, server: Banning, site: int) -> None:
        self._server, self._site = server, site
        self._number = next(server.connections)
        self._buffer = b""
        self._ip = ""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ip = transport.get_extra_info("peername")[0]
        self._server.open.add(transport)

    def connection_lost(self, _error: Exception | None) -> None:
        assert self._transport
        self._server.open.discard(self._transport)

    def data_received(self, data: bytes) -> None:
        """Respond to each complete head; requests have no bodies."""
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, _, self._buffer = self._buffer.partition(b"\r\n\r\n")
            answer = self._answer(head.decode("latin-1"))
            if self._server.delay_s:
                asyncio.get_running_loop().call_later(self._server.delay_s, self._send, answer)
            else:
                self._send(answer)

    def _send(self, answer: bytes) -> None:
        assert self._transport
        if answer:
            self._transport.write(answer)
        else:
            self._transport.close()

    def _answer(self, head: str) -> bytes:
        line, *fields = head.split("\r\n")
        path = line.split(" ")[1]
        cookie = next((each.partition(":")[2].strip() for each in fields if each.lower().startswith("cookie:")), "")
        now = time.monotonic()
        client = None if path == "/robots.txt" else self._server.count_request(self._site, self._ip, now)
        status, more, body = self._page(path) if client is None else _ban_response(client, now)
        good = client is None and status == 200
        self._server.record(Hit(now, self._site, self._ip, path, status, good, cookie, self._number))
        if not status:
            return b""
        if not cookie:
            more += f"Set-Cookie: seen={next(self._server.cookies)}\r\n"
        kind = "text/plain" if path == "/robots.txt" else "text/html"
        length = len(body.encode())
        return f"HTTP/1.1 {status} -\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{more}\r\n{body}".encode()

    def _page(self, path: str) -> tuple[int, str, str]:
        if path == "/robots.txt":
            return 200, "", self._server.robots
        path = path.partition("?")[0]
        number = 0 if path == "/" else int(path[6:]) if path.startswith("/page/") and path[6:].isdigit() else -1
        if not 0 <= number < max(1, self._server.page_count):
            return 404, "", "no such page"
        children = range(LINKS * number + 1, min(LINKS * number + LINKS + 1, self._server.page_count))
        links = "".join(f'<a href="/page/{child}">{child}</a> ' for child in children)
        return 200, "", f"<title>Page {number}</title>{links}"


def _ban_response(client: ClientRecord, now: float) -> tuple[int, str, str]:
    assert client.response is not None
    more = ""
    if client.response is BanResponse.TOO_MANY and client.until < float("inf"):
        more = f"Retry-After: {ceil(client.until - now - 0.5)}\r\n"
    return client.response.value, more, CAPTCHA if client.response is BanResponse.SOFT else "<title>No</title>"


@asynccontextmanager
async def banning(
    *,
    sites: int = 1,
    pages: int = 100,
    limit: Limit | None = None,
    delay_s: float = 0.0,
    tls: ssl.SSLContext | None = None,
    address: str = "",
) -> AsyncIterator[Banning]:
    """Serve on the running loop while the block runs. `delay_s` precedes each response; `address` is that of all
    sites.
    """
    server = Banning(sites, pages, limit, delay_s, "http" if tls is None else "https", address)
    loop = asyncio.get_running_loop()
    listening = [
        await loop.create_server(lambda site=site: SiteConnection(server, site), address, 0, ssl=tls, backlog=1024)
        for site, address in enumerate(server.addresses)
    ]
    server.ports = [each.sockets[0].getsockname()[1] for each in listening]
    try:
        yield server
    finally:
        for each in listening:
            each.close()
        for transport in server.open:
            transport.abort()
        await asyncio.sleep(0)
