"""What the tests of the gateway share: a gateway over a pool of proxies that do as they are told, and raw clients.

    def test_something(played):
        async def play(stage):
            proxy = await stage.proxy(plays(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi"))
            assert (await stage.ask(b"GET http://shop.example/ HTTP/1.1\\r\\n...")).endswith(b"hi")
            assert proxy.heard == [b"GET http://shop.example/ HTTP/1.1\\r\\n..."]
        played(play)

A proxy is a server on raw sockets: what it hears is kept byte for byte, for each connection. At the end nothing may be
left: no task, no lease, no connection.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import uvloop

from lycosa.app.proxies.gateway import gateway_context
from lycosa.http.core.private_addresses import AllowedPrivate
from lycosa.proxies.core.gateway.access_rules import AccessRules
from lycosa.proxies.core.gateway.accounts import Accounts
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.project_policies import Policies
from lycosa.proxies.core.proxy import Proxy, parse_proxy
from lycosa.proxies.gateway.gateway import Gateway, open_listener, run_gateway
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyLease
from tests.http.static_resolver import StaticResolver
from tests.servers.ports import closed_port

TEST_MAX_S = 60.0
NAMES = {
    "shop.example": ["93.184.216.34"],
    "www.shop.example": ["93.184.216.34"],
    "other.example": ["2606:2800:220:1::1"],
    "inside.example": ["10.0.0.1"],
    "both.example": ["93.184.216.34", "127.0.0.1"],
}
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
GET = b"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n\r\n"
LAST = b"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"

Part = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def plays(*answers: bytes, close: bool = False) -> Part:
    """Return what answers heads, one after the other, the last one again and again."""
    left = list(answers)

    async def part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            if close:
                return

    return part


class Told:
    """A proxy that plays a part. `heard`: the bytes of each connection; `open`: how many there are now."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.heard: list[bytes] = []
        self.open = 0
        self.address = ""
        self.proxy: Proxy
        self._tasks: set[asyncio.Task[None]] = set()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.heard)
        self.heard.append(b"")
        self.open += 1
        inner = asyncio.StreamReader(limit=1 << 20)

        async def listen() -> None:
            while data := await reader.read(65_536):
                self.heard[number] += data
                inner.feed_data(data)
            inner.feed_eof()

        listener = asyncio.create_task(listen())
        try:
            await self.part(inner, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # somebody went
        finally:
            writer.close()
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
            self.open -= 1


class Recorded(LocalPool):
    """A pool that tells what it heard. `returned`: targets and outcomes, in order."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.returned: list[tuple[ProxyLease, list[Outcome]]] = []

    async def release(self, lease: ProxyLease, outcomes: Any = ()) -> bool:
        self.returned.append((lease, list(outcomes)))
        return await super().release(lease, outcomes)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Blame and reason of every use."""
        return [(str(each.blame), each.reason) for _, outcomes in self.returned for each in outcomes]


class Stage:
    """A gateway that runs."""

    def __init__(self, gateway: Gateway, pool: Recorded, port: int, stack: AsyncExitStack) -> None:
        self.gateway = gateway
        self.pool = pool
        self.port = port
        self._stack = stack

    async def proxy(
        self, part: Part, scheme: str = "http", login: str = "", tls: ssl.SSLContext | None = None, **facts: Any
    ) -> Told:
        """Add a proxy that plays this part."""
        told = Told(part)
        server = await asyncio.start_server(told.connected, "127.0.0.1", 0, ssl=tls)
        self._stack.push_async_callback(told.stop)
        self._stack.callback(server.close)
        told.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        told.proxy = parse_proxy(f"{scheme}://{login}{told.address}", **facts)
        await self.pool.add([told.proxy])
        return told

    async def dead(self) -> Proxy:
        """Add a proxy where nobody listens."""
        proxy = parse_proxy(f"http://127.0.0.1:{closed_port()}")
        await self.pool.add([proxy])
        return proxy

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a client's connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._stack.callback(writer.close)
        return reader, writer

    async def ask(self, *pieces: bytes, eof: bool = False) -> bytes:
        """Send bytes over a new connection. Return all that comes until it ends."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        if eof:
            writer.write_eof()
        try:
            return await self.gone(reader)
        finally:
            writer.close()

    async def gone(self, reader: asyncio.StreamReader) -> bytes:
        """Return what comes until a connection ends, in whatever way."""
        with suppress(ConnectionError):
            return await reader.read()
        return b""

    async def head(self, reader: asyncio.StreamReader) -> bytes:
        """Return the next head."""
        return await reader.readuntil(b"\r\n\r\n")


Play = Callable[[Stage], Awaitable[None]]


@asynccontextmanager
async def staged(
    users: dict[str, str] | None = None,
    access: AccessRules | None = None,
    policies: Policies | None = None,
    tls: ssl.SSLContext | None = None,
    **limits: Any,
) -> AsyncIterator[Stage]:
    policies = policies or Policies()
    pool = Recorded(policies.policy_of)
    context = gateway_context(
        pool,
        policies,
        Accounts(users),
        access or AccessRules(),
        Limits(**{"wait_s": 0.2, "connect_s": 5.0, "grace_s": 1.0, **limits}),
        tls,
        StaticResolver(NAMES),
    )
    listener = open_listener("127.0.0.1:0", has_accounts=bool(users))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pool.close)
        async with run_gateway(context, listener) as gateway:
            yield Stage(gateway, pool, listener.getsockname()[1], stack)
            await stack.aclose()


def played(play: Play, loop: str = "uvloop", **options: Any) -> None:
    """Run a play. Fails on what the loop complains about, and on leases and connections that are left."""
    complaints: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        async with asyncio.timeout(TEST_MAX_S), staged(**options) as stage:
            await play(stage)
            gateway = stage.gateway
        assert not gateway.context.leases, "leases are left"
        assert not gateway.context.idle_connections, "connections to proxies are left"
        assert gateway.context.counts.clients == 0
        assert gateway.context.counts.tunnels_open == 0

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    assert complaints == [], str(complaints)[:2000]


ANYWHERE = AccessRules(allowed=AllowedPrivate(["*"]), ports=(range(1, 65_536),))
