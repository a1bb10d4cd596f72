"""The harness of the gateway's tests: a gateway over fake proxies that respond as a test says, and raw clients.

    def test_something(run):
        async def scenario(gateway):
            proxy = await gateway.add_proxy(respond(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\nhi"))
            assert (await gateway.request(b"GET http://shop.example/ HTTP/1.1\\r\\n...")).endswith(b"hi")
            assert proxy.received == [b"GET http://shop.example/ HTTP/1.1\\r\\n..."]
        run(scenario)

A fake proxy is a server on raw sockets, which records the bytes of each connection. At the end of a scenario no task,
lease or connection may be left.
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
from lycosa.proxies.gateway.routing import GatewayContext
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
GET_AND_CLOSE = b"GET http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n"

Responder = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def respond(*responses: bytes, close: bool = False) -> Responder:
    """Return a responder that answers each request head with the next response, and repeats the last response."""
    left = list(responses)

    async def responder(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(left.pop(0) if len(left) > 1 else left[0])
            await writer.drain()
            if close:
                return

    return responder


class FakeProxy:
    """A proxy that runs a responder. `received`: the bytes of each connection; `open`: the number of open ones."""

    def __init__(self, responder: Responder) -> None:
        self.responder = responder
        self.received: list[bytes] = []
        self.open = 0
        self.address = ""
        self.proxy: Proxy
        self._tasks: set[asyncio.Task[None]] = set()

    def on_connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.received)
        self.received.append(b"")
        self.open += 1
        copy = asyncio.StreamReader(limit=1 << 20)

        async def record() -> None:
            while data := await reader.read(65_536):
                self.received[number] += data
                copy.feed_data(data)
            copy.feed_eof()

        recording = asyncio.create_task(record())
        try:
            await self.responder(copy, writer)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the gateway disconnected
        finally:
            writer.close()
            recording.cancel()
            await asyncio.gather(recording, return_exceptions=True)
            self.open -= 1


class RecordingPool(LocalPool):
    """A pool that records each released lease with its outcomes."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.released: list[tuple[ProxyLease, list[Outcome]]] = []

    async def release(self, lease: ProxyLease, outcomes: Any = ()) -> bool:
        self.released.append((lease, list(outcomes)))
        return await super().release(lease, outcomes)

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        """Blame and reason of every use."""
        return [(str(each.blame), each.reason) for _, outcomes in self.released for each in outcomes]


class RunningGateway:
    """A running gateway with its pool and port, and the methods with which a test adds proxies and sends requests."""

    def __init__(self, gateway: Gateway, pool: RecordingPool, port: int, stack: AsyncExitStack) -> None:
        self.context: GatewayContext = gateway.context
        self.pool = pool
        self.port = port
        self._stack = stack

    async def add_proxy(
        self,
        responder: Responder,
        scheme: str = "http",
        login: str = "",
        tls: ssl.SSLContext | None = None,
        **facts: Any,
    ) -> FakeProxy:
        """Add a proxy that runs this responder."""
        proxy = FakeProxy(responder)
        server = await asyncio.start_server(proxy.on_connect, "127.0.0.1", 0, ssl=tls)
        self._stack.push_async_callback(proxy.stop)
        self._stack.callback(server.close)
        proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        proxy.proxy = parse_proxy(f"{scheme}://{login}{proxy.address}", **facts)
        await self.pool.add([proxy.proxy])
        return proxy

    async def add_dead_proxy(self) -> Proxy:
        """Add a proxy at a closed port."""
        proxy = parse_proxy(f"http://127.0.0.1:{closed_port()}")
        await self.pool.add([proxy])
        return proxy

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a client's connection."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        self._stack.callback(writer.close)
        return reader, writer

    async def request(self, *pieces: bytes) -> bytes:
        """Send bytes over a new connection. Return all bytes that come until the connection ends."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        try:
            return await self.read_to_end(reader)
        finally:
            writer.close()

    async def read_to_end(self, reader: asyncio.StreamReader) -> bytes:
        """Return the bytes that come until a connection ends, or none if it ends with an error."""
        with suppress(ConnectionError):
            return await reader.read()
        return b""

    async def read_head(self, reader: asyncio.StreamReader) -> bytes:
        """Return the next head."""
        return await reader.readuntil(b"\r\n\r\n")

    async def wait_for_leases_to_end(self) -> None:
        while self.context.leases:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


Scenario = Callable[[RunningGateway], Awaitable[None]]


@asynccontextmanager
async def running_gateway(
    users: dict[str, str] | None = None,
    access: AccessRules | None = None,
    policies: Policies | None = None,
    tls: ssl.SSLContext | None = None,
    **limits: Any,
) -> AsyncIterator[RunningGateway]:
    policies = policies or Policies()
    pool = RecordingPool(policies.policy_of, draw=lambda: 0.99)  # the longest pauses: a test may be slow
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
            yield RunningGateway(gateway, pool, listener.getsockname()[1], stack)
            await stack.aclose()


def run_scenario(scenario: Scenario, loop: str = "uvloop", **options: Any) -> None:
    """Run a scenario. Fails on errors that the loop reports, and on leases and connections that are left."""
    errors: list[Any] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
        async with asyncio.timeout(TEST_MAX_S), running_gateway(**options) as gateway:
            await scenario(gateway)
        assert not gateway.context.leases, "leases are left"
        assert not gateway.context.idle_connections, "connections to proxies are left"
        assert gateway.context.counts.clients == 0
        assert gateway.context.counts.tunnels_open == 0

    factory = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())
    assert errors == [], str(errors)[:2000]


ANYWHERE = AccessRules(allowed=AllowedPrivate(["*"]), ports=(range(1, 65_536),))
