"""CONNECT and SOCKS 5 through the gateway, over every kind of proxy."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest

from lycosa.app.proxies.gateway import raise_open_files_limit
from lycosa.proxies.core.gateway.access_rules import AccessRules, NamePolicy
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.project_policies import Policies, TargetSettings
from tests.proxies.gateway.harness import Responder, RunningGateway

CONNECT = b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
OPENED = b"HTTP/1.1 200 OK\r\n\r\n"
SOCKS_OPENED = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
GREETING, LOGIN = b"\x05\x01\x00", b"\x05\x01\x02"
TO_SHOP = b"\x05\x01\x00\x03\x0cshop.example\x01\xbb"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def accept_tunnel(*steps: tuple[int, bytes], then: Responder = echo) -> Responder:
    """Return a responder that takes these steps, then runs `then`.

    A step is the number of bytes to read (0: a head) and the answer to send.
    """

    async def part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length, answer in steps:
            await (reader.readexactly(length) if length else reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
        await then(reader, writer)

    return part


HTTP = accept_tunnel((0, OPENED))


def test_connect_opens_a_tunnel(run_on_both_loops):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP, login="ann:secret@")
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        head = await gateway.read_head(reader)
        assert head.startswith(b"HTTP/1.1 200 Connection established\r\nX-Proxy-Lease: ")
        for size in (1, 1000, 2_000_000):
            writer.write(b"x" * size)
            assert await reader.readexactly(size) == b"x" * size
        writer.write_eof()
        assert await reader.read() == b""
        assert proxy.received[0].startswith(
            b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\nProxy-Authorization: Basic "
            + b64encode(b"ann:secret") + b"\r\n\r\nx"
        )  # fmt: skip
        await gateway.wait_for_leases_to_end()
        assert gateway.pool.outcomes == [("nobody", "")]
        counts = gateway.context.counts
        assert (counts.bytes_up, counts.bytes_down) == (2_001_001, 2_001_001)
        assert counts.tunnels == {"connect": 1}

    run_on_both_loops(scenario)


def test_early_bytes_of_both_sides_are_not_lost(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, OPENED + b"220 welcome\r\n")))
        reader, writer = await gateway.connect()
        writer.write(CONNECT + b"early")
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(18) == b"220 welcome\r\nearly"
        writer.close()
        await gateway.wait_for_leases_to_end()
        counts = gateway.context.counts
        assert (counts.bytes_up, counts.bytes_down) == (5, 18)

    run(scenario)


@pytest.mark.parametrize(
    ("scheme", "login", "steps", "handshake"),
    [
        ("http", "", [(0, OPENED)], b"CONNECT shop.example:443 "),
        ("socks5h", "", [(3, b"\x05\x00"), (19, SOCKS_OPENED)], b"\x05\x01\x00" + TO_SHOP),
        ("socks5", "", [(3, b"\x05\x00"), (10, SOCKS_OPENED)], b"\x05\x01\x00\x05\x01\x00\x01\x5d\xb8\xd8\x22\x01\xbb"),
        (
            "socks5h",
            "ann:secret@",
            [(4, b"\x05\x02"), (12, b"\x01\x00"), (19, SOCKS_OPENED)],
            b"\x05\x02\x00\x02\x01\x03ann\x06secret" + TO_SHOP,
        ),
        ("socks4a", "", [(22, b"\x00\x5a" + bytes(6))], b"\x04\x01\x01\xbb\x00\x00\x00\x01\x00shop.example\x00"),
        ("socks4", "", [(9, b"\x00\x5a" + bytes(6))], b"\x04\x01\x01\xbb\x5d\xb8\xd8\x22\x00"),
    ],
)
@pytest.mark.parametrize("client", ["connect", "socks", "plain"])
def test_every_kind_of_proxy_carries_every_kind_of_request(run, scheme, login, steps, handshake: bytes, client: str):
    async def respond_always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async def scenario(gateway: RunningGateway) -> None:
        if client == "plain" and scheme == "http":
            return  # see test_http.py
        proxy = await gateway.add_proxy(accept_tunnel(*steps, then=respond_always), scheme, login)
        reader, writer = await gateway.connect()
        request = b"GET http://shop.example:443/x HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
        expected = handshake + b"GET /x HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
        if client == "connect":
            writer.write(CONNECT)
            await gateway.read_head(reader)
        elif client == "socks":
            writer.write(GREETING + TO_SHOP)
            assert await reader.readexactly(12) == b"\x05\x00" + SOCKS_OPENED
        if client != "plain":
            request = b"GET /x HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
        writer.write(request)
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(2) == b"hi"
        writer.close()
        assert proxy.received == [expected] if scheme != "http" else proxy.received[0].startswith(handshake)

    run(scenario)


def test_a_connection_through_socks_is_reused_for_its_host_only(run):
    async def respond_always(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async def socks_to_any_host(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.readexactly(7 + (await reader.readexactly(5))[4] - 5)
        writer.write(SOCKS_OPENED)
        await respond_always(reader, writer)

    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(socks_to_any_host, "socks5h")
        reader, writer = await gateway.connect()
        for host in (b"shop.example", b"other.example", b"shop.example"):
            writer.write(b"GET http://%b/ HTTP/1.1\r\nHost: x\r\n\r\n" % host)
            await gateway.read_head(reader)
            await reader.readexactly(2)
        assert [each.count(b"GET") for each in proxy.received] == [2, 1]

    run(scenario)


def test_a_half_closed_tunnel_carries_the_other_direction(run_on_both_loops):
    async def send_size(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.read()
        writer.write(b"%d" % len(received))

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, OPENED), then=send_size))
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        await gateway.read_head(reader)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"1000000"

    run_on_both_loops(scenario)


def test_a_broken_tunnel_ends_for_the_client(run_on_both_loops):
    async def send_and_abort(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(b"some")
        await writer.drain()
        writer.transport.abort()

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, OPENED), then=send_and_abort))
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        await gateway.read_head(reader)
        writer.write(b"hello")
        assert await gateway.read_to_end(reader) in (b"some", b"")
        writer.close()
        await gateway.wait_for_leases_to_end()
        assert len(gateway.pool.released) == 1

    run_on_both_loops(scenario)


def test_a_tunnel_that_brings_nothing_is_a_miss(run):
    async def read_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, OPENED), then=read_and_close))
        reader, writer = await gateway.connect()
        writer.write(CONNECT + b"hello")
        await gateway.read_head(reader)
        assert await reader.read() == b""
        writer.close()
        while not gateway.pool.released:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert gateway.pool.outcomes == [("miss", "no data came through the tunnel")]

    run(scenario)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"HTTP/1.1 502 No\r\n\r\n", ("miss", "proxy answered 502")),
        (b"HTTP/1.1 407 No\r\n\r\n", ("proxy", "proxy refused the login (407)")),
        (b"nonsense\r\n\r\n", ("proxy", "proxy sent an invalid HTTP response")),
    ],
)
def test_a_proxy_that_does_not_connect_is_replaced(run, answer: bytes, outcome: tuple[str, str]):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, answer)))
        await gateway.add_proxy(HTTP, price_request=1.0)
        reader, writer = await gateway.connect()
        writer.write(CONNECT + b"hello")
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(5) == b"hello"
        assert gateway.pool.outcomes == [outcome]
        writer.close()

    run(scenario)


def test_a_tunnel_that_no_proxy_opens_is_a_502(run):
    async def scenario(gateway: RunningGateway) -> None:
        for _ in range(5):
            await gateway.add_proxy(accept_tunnel((0, b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")))
        reader, writer = await gateway.connect()
        for _ in range(2):  # the connection can be reused
            writer.write(CONNECT)
            head = await gateway.read_head(reader)
            assert head.startswith(b"HTTP/1.1 502 ")
            assert b"X-Proxy-Error: no answer: proxy answered 502\r\n" in head
            await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))

    run(scenario, attempts=2)


def test_an_idle_tunnel_ends(run, monkeypatch: pytest.MonkeyPatch):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        await gateway.read_head(reader)
        assert await gateway.read_to_end(reader) == b""

    monkeypatch.setattr("lycosa.proxies.gateway.gateway.SWEEP_S", 0.02)
    run(scenario, tunnel_idle_s=0.2)


def test_a_slow_side_pauses_the_other(run_on_both_loops):
    sent = 0

    async def send_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if sent:
            await echo(reader, writer)
            return
        while sent < 50_000_000:
            writer.write(b"x" * 99_990 + b"%09d\n" % sent)
            await writer.drain()
            sent += 100_000

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, OPENED), then=send_much))
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        await gateway.read_head(reader)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 25_000_000
        # The gateway reads this tunnel into its shared buffer, which must not hold unsent bytes of the first one.
        another, other = await gateway.connect()
        other.write(CONNECT.replace(b"shop", b"other"))
        await gateway.read_head(another)
        other.write(b"y" * 2_000_000)
        assert await another.readexactly(2_000_000) == b"y" * 2_000_000
        other.close()
        received = await reader.read()
        assert len(received) == 50_000_000
        pieces = [received[at : at + 100_000] for at in range(0, 50_000_000, 100_000)]
        good = [b"x" * 99_990 + b"%09d\n" % (100_000 * number) for number in range(500)]
        assert pieces == good  # nothing was overwritten

    run_on_both_loops(scenario)


@pytest.mark.parametrize("tunnels", [100, pytest.param(1_000, marks=pytest.mark.prove)])
def test_many_tunnels_at_a_time(run, tunnels: int):
    async def scenario(gateway: RunningGateway) -> None:
        raise_open_files_limit(Limits())
        await gateway.add_proxy(HTTP)
        opened = []
        for _ in range(tunnels):
            opened.append(await gateway.connect())
            opened[-1][1].write(CONNECT)
            await gateway.read_head(opened[-1][0])
        assert gateway.context.counts.tunnels_open == tunnels
        for number, (_, writer) in enumerate(opened):
            writer.write(b"%06d" % number)
        assert [await reader.readexactly(6) for reader, _ in opened] == [b"%06d" % number for number in range(tunnels)]
        for _, writer in opened:
            writer.close()

    run(scenario, policies=Policies(TargetSettings(TargetPolicy(concurrency=0))))


# --- SOCKS 5


def test_socks_logins_are_checked(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP, tags={"country": "de"})
        good = b"\x01\x0eann-country-de\x06secret"
        assert await gateway.request(GREETING) == b"\x05\xff"
        assert await gateway.request(LOGIN, b"\x01\x03ann\x05wrong") == b"\x05\x02\x01\x01"
        assert await gateway.request(LOGIN, b"\x01\x03bob\x06secret") == b"\x05\x02\x01\x01"
        assert await gateway.request(LOGIN, b"\x01\x0bann-wrong-x\x06secret") == b"\x05\x02\x01\x01"
        reader, writer = await gateway.connect()
        writer.write(LOGIN + good + TO_SHOP + b"early")
        assert await reader.readexactly(2 + 2 + 10 + 5) == b"\x05\x02\x01\x00" + SOCKS_OPENED + b"early"
        assert gateway.context.counts.tunnels == {"socks": 1}
        writer.close()

    run(scenario, users={"ann": "secret"})


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (b"\x05\x02\x00\x03\x0cshop.example\x01\xbb", b"\x07"),  # BIND
        (b"\x05\x03\x00\x03\x0cshop.example\x01\xbb", b"\x07"),  # UDP
        (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb", b"\x02"),  # loopback
        (b"\x05\x01\x00\x03\x0cshop.example\x00\x19", b"\x02"),  # mail
        (b"\x05\x01\x00\x03\x0einside.example\x01\xbb", b"\x02"),  # a name that resolves to a private address
    ],
)
def test_socks_refuses_commands_and_destinations(run, request_: bytes, code: bytes):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        answer = await gateway.request(GREETING + request_)
        assert answer == b"\x05\x00\x05" + code + b"\x00\x01" + bytes(6)
        assert proxy.received == []
        assert not gateway.context.counts.tunnels, "none was opened"

    run(scenario)


def test_socks_replies_say_that_no_proxy_connected(run):
    async def scenario(gateway: RunningGateway) -> None:
        assert await gateway.request(GREETING + TO_SHOP) == b"\x05\x00\x05\x01\x00\x01" + bytes(6)
        await gateway.add_proxy(accept_tunnel((0, b"HTTP/1.1 502 No\r\n\r\n")))
        assert await gateway.request(GREETING + TO_SHOP) == b"\x05\x00\x05\x04\x00\x01" + bytes(6)

    run(scenario, attempts=1)


@pytest.mark.parametrize(
    "garbage", [b"\x05\x01\x00\x04" + bytes(20), b"\x05\x01\x00" + bytes(20), b"\x04\x01\x00\x50", b"\x16\x03\x01"]
)
def test_invalid_bytes_close_the_connection(run, garbage: bytes):
    async def scenario(gateway: RunningGateway) -> None:
        assert len(await gateway.request(garbage)) <= 2

    run(scenario)


# --- names and addresses


def test_pinned_names_are_sent_as_addresses(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(accept_tunnel((0, OPENED)))
        for request in (CONNECT, b"GET http://shop.example/ HTTP/1.1\r\nHost: a\r\n\r\n"):
            reader, writer = await gateway.connect()
            writer.write(request)
            await reader.readline()
            writer.close()
        assert proxy.received[0] == b"CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\r\n"
        assert proxy.received[1] == (
            b"CONNECT 93.184.216.34:80 HTTP/1.1\r\nHost: 93.184.216.34:80\r\n\r\n"
            b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"
        )

    run(scenario, access=AccessRules(names=NamePolicy.PIN))


def test_trusted_names_are_not_resolved(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        reader, writer = await gateway.connect()
        writer.write(CONNECT.replace(b"shop", b"nobody-knows"))
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200")
        assert b"nobody-knows.example" in proxy.received[0]
        writer.close()

    run(scenario, access=AccessRules(names=NamePolicy.TRUST))
