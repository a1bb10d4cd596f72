"""CONNECT and SOCKS 5 through the gateway, over every kind of proxy (P6)."""

from __future__ import annotations

import asyncio
from base64 import b64encode

import pytest

from lycosa.app.proxies.gateway import allow_connections
from lycosa.proxies.core.gateway.access_rules import AccessRules, NamePolicy
from lycosa.proxies.core.gateway.limits import Limits
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.project_policies import Policies, TargetSettings
from tests.proxies.gateway.playing import Part, Stage

CONNECT = b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
OPENED = b"HTTP/1.1 200 OK\r\n\r\n"
SOCKS_OPENED = b"\x05\x00\x00\x01\x00\x00\x00\x00\x00\x00"
GREETING, LOGIN = b"\x05\x01\x00", b"\x05\x01\x02"
TO_SHOP = b"\x05\x01\x00\x03\x0cshop.example\x01\xbb"


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()


def opens(*steps: tuple[int, bytes], then: Part = echo) -> Part:
    """Return what reads so many bytes (0: a head) and answers, step by step, and is the other side from then on."""

    async def part(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for length, answer in steps:
            await (reader.readexactly(length) if length else reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
        await then(reader, writer)

    return part


HTTP = opens((0, OPENED))


def test_connect_opens_a_tunnel(played_on_both):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP, login="ann:secret@")
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        head = await stage.head(reader)
        assert head.startswith(b"HTTP/1.1 200 Connection established\r\nX-Proxy-Lease: ")
        for size in (1, 1000, 2_000_000):
            writer.write(b"x" * size)
            assert await reader.readexactly(size) == b"x" * size
        writer.write_eof()
        assert await reader.read() == b""
        assert proxy.heard[0].startswith(
            b"CONNECT shop.example:443 HTTP/1.1\r\nHost: shop.example:443\r\nProxy-Authorization: Basic "
            + b64encode(b"ann:secret") + b"\r\n\r\nx"
        )  # fmt: skip
        while stage.gateway.context.leases:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert stage.pool.outcomes == [("nobody", "")]
        counts = stage.gateway.context.counts
        assert (counts.bytes_up, counts.bytes_down) == (2_001_001, 2_001_001)
        assert counts.tunnels == {"connect": 1}

    played_on_both(play)


def test_early_bytes_of_both_sides_are_not_lost(played):
    async def speaks_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await echo(reader, writer)

    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, OPENED + b"220 welcome\r\n"), then=speaks_first))
        reader, writer = await stage.connect()
        writer.write(CONNECT + b"early")
        assert (await stage.head(reader)).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(18) == b"220 welcome\r\nearly"
        writer.close()

    played(play)


@pytest.mark.parametrize(
    ("scheme", "login", "steps", "asked"),
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
def test_every_kind_of_proxy_carries_every_kind_of_request(played, scheme, login, steps, asked: bytes, client: str):
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async def play(stage: Stage) -> None:
        if client == "plain" and scheme == "http":
            return  # as in test_http.py
        proxy = await stage.proxy(opens(*steps, then=answers), scheme, login)
        reader, writer = await stage.connect()
        request = b"GET http://shop.example:443/x HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
        expected = asked + b"GET /x HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
        if client == "connect":
            writer.write(CONNECT)
            await stage.head(reader)
        elif client == "socks":
            writer.write(GREETING + TO_SHOP)
            assert await reader.readexactly(12) == b"\x05\x00" + SOCKS_OPENED
        if client != "plain":
            request = b"GET /x HTTP/1.1\r\nHost: shop.example:443\r\n\r\n"
        writer.write(request)
        assert (await stage.head(reader)).startswith(b"HTTP/1.1 200 OK")
        assert await reader.readexactly(2) == b"hi"
        writer.close()
        assert proxy.heard == [expected] if scheme != "http" else proxy.heard[0].startswith(asked)

    played(play)


def test_a_connection_through_socks_is_reused_for_its_host_only(played):
    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")

    async def any_host(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(3)
        writer.write(b"\x05\x00")
        await reader.readexactly(7 + (await reader.readexactly(5))[4] - 5)
        writer.write(SOCKS_OPENED)
        await answers(reader, writer)

    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(any_host, "socks5h")
        reader, writer = await stage.connect()
        for host in (b"shop.example", b"other.example", b"shop.example"):
            writer.write(b"GET http://%b/ HTTP/1.1\r\nHost: x\r\n\r\n" % host)
            await stage.head(reader)
            await reader.readexactly(2)
        assert [each.count(b"GET") for each in proxy.heard] == [2, 1]

    played(play)


def test_a_half_closed_tunnel_carries_the_other_direction(played_on_both):
    async def sums_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        whole = await reader.read()
        writer.write(b"%d" % len(whole))

    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, OPENED), then=sums_up))
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        await stage.head(reader)
        writer.write(b"x" * 1_000_000)
        writer.write_eof()
        assert await reader.read() == b"1000000"

    played_on_both(play)


def test_a_broken_tunnel_ends_for_the_client(played_on_both):
    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)
        writer.write(b"some")
        await writer.drain()
        writer.transport.abort()

    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, OPENED), then=dies))
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        await stage.head(reader)
        writer.write(b"hello")
        assert await stage.gone(reader) in (b"some", b"")
        writer.close()
        while stage.gateway.context.leases:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert len(stage.pool.returned) == 1

    played_on_both(play)


def test_a_tunnel_that_brings_nothing_is_a_miss(played):
    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(5)

    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, OPENED), then=mute))
        reader, writer = await stage.connect()
        writer.write(CONNECT + b"hello")
        await stage.head(reader)
        assert await reader.read() == b""
        writer.close()
        while not stage.pool.returned:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert stage.pool.outcomes == [("miss", "the tunnel brought nothing")]

    played(play)


@pytest.mark.parametrize(
    ("answer", "outcome"),
    [
        (b"HTTP/1.1 502 No\r\n\r\n", ("miss", "proxy answered 502")),
        (b"HTTP/1.1 407 No\r\n\r\n", ("proxy", "proxy refused the login (407)")),
        (b"nonsense\r\n\r\n", ("proxy", "proxy sent an invalid HTTP response")),
    ],
)
def test_a_proxy_that_does_not_connect_is_replaced(played, answer: bytes, outcome: tuple[str, str]):
    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, answer)))
        await stage.proxy(HTTP, price_request=1.0)
        reader, writer = await stage.connect()
        writer.write(CONNECT + b"hello")
        assert (await stage.head(reader)).startswith(b"HTTP/1.1 200")
        assert await reader.readexactly(5) == b"hello"
        assert stage.pool.outcomes == [outcome]
        writer.close()

    played(play)


def test_a_tunnel_that_no_proxy_opens_is_a_502(played):
    async def play(stage: Stage) -> None:
        for _ in range(5):
            await stage.proxy(opens((0, b"HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n")))
        reader, writer = await stage.connect()
        for _ in range(2):  # and the connection can be used again
            writer.write(CONNECT)
            head = await stage.head(reader)
            assert head.startswith(b"HTTP/1.1 502 ")
            assert b"X-Proxy-Error: no answer: proxy answered 502\r\n" in head
            await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))

    played(play, attempts=2)


def test_an_idle_tunnel_ends(played, monkeypatch: pytest.MonkeyPatch):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP)
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        await stage.head(reader)
        assert await stage.gone(reader) == b""

    monkeypatch.setattr("lycosa.proxies.gateway.gateway.SWEEP_S", 0.02)
    played(play, tunnel_idle_s=0.2)


def test_a_slow_side_pauses_the_other(played_on_both):
    sent = 0

    async def gushes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if sent:
            await echo(reader, writer)
            return
        while sent < 50_000_000:
            writer.write(b"x" * 99_990 + b"%09d\n" % sent)
            await writer.drain()
            sent += 100_000

    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, OPENED), then=gushes))
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        await stage.head(reader)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 25_000_000
        another, other = await stage.connect()  # reads into what the first one may still want to send
        other.write(CONNECT.replace(b"shop", b"other"))
        await stage.head(another)
        other.write(b"y" * 2_000_000)
        assert await another.readexactly(2_000_000) == b"y" * 2_000_000
        other.close()
        whole = await reader.read()
        assert len(whole) == 50_000_000
        pieces = [whole[at : at + 100_000] for at in range(0, 50_000_000, 100_000)]
        good = [b"x" * 99_990 + b"%09d\n" % (100_000 * number) for number in range(500)]
        assert pieces == good  # and nothing was written over

    played_on_both(play)


@pytest.mark.parametrize("tunnels", [100, pytest.param(1_000, marks=pytest.mark.prove)])
def test_many_tunnels_at_a_time(played, tunnels: int):
    async def play(stage: Stage) -> None:
        allow_connections(Limits())
        await stage.proxy(HTTP)
        opened = []
        for _ in range(tunnels):
            opened.append(await stage.connect())
            opened[-1][1].write(CONNECT)
            await stage.head(opened[-1][0])
        assert stage.gateway.context.counts.tunnels_open == tunnels
        for number, (_, writer) in enumerate(opened):
            writer.write(b"%06d" % number)
        assert [await reader.readexactly(6) for reader, _ in opened] == [b"%06d" % number for number in range(tunnels)]
        for _, writer in opened:
            writer.close()

    played(play, policies=Policies(TargetSettings(TargetPolicy(concurrency=0))))


# --- SOCKS 5


def test_socks_logins_are_checked(played):
    async def play(stage: Stage) -> None:
        await stage.proxy(HTTP, tags={"country": "de"})
        good = b"\x01\x0eann-country-de\x06secret"
        assert await stage.ask(GREETING) == b"\x05\xff"
        assert await stage.ask(LOGIN, b"\x01\x03ann\x05wrong") == b"\x05\x02\x01\x01"
        assert await stage.ask(LOGIN, b"\x01\x03bob\x06secret") == b"\x05\x02\x01\x01"
        assert await stage.ask(LOGIN, b"\x01\x0bann-wrong-x\x06secret") == b"\x05\x02\x01\x01"
        reader, writer = await stage.connect()
        writer.write(LOGIN + good + TO_SHOP + b"early")
        assert await reader.readexactly(2 + 2 + 10 + 5) == b"\x05\x02\x01\x00" + SOCKS_OPENED + b"early"
        assert stage.gateway.context.counts.tunnels == {"socks": 1}
        writer.close()

    played(play, users={"ann": "secret"})


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (b"\x05\x02\x00\x03\x0cshop.example\x01\xbb", b"\x07"),  # BIND
        (b"\x05\x03\x00\x03\x0cshop.example\x01\xbb", b"\x07"),  # UDP
        (b"\x05\x01\x00\x01\x7f\x00\x00\x01\x01\xbb", b"\x02"),  # loopback
        (b"\x05\x01\x00\x03\x0cshop.example\x00\x19", b"\x02"),  # mail
        (b"\x05\x01\x00\x03\x0einside.example\x01\xbb", b"\x02"),  # a name that leads inside
    ],
)
def test_socks_refuses_commands_and_destinations(played, request_: bytes, answer: bytes):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP)
        said = await stage.ask(GREETING + request_)
        assert said == b"\x05\x00\x05" + answer + b"\x00\x01" + bytes(6)
        assert proxy.heard == []
        assert not stage.gateway.context.counts.tunnels, "none was opened"

    played(play)


def test_socks_replies_say_that_no_proxy_connected(played):
    async def play(stage: Stage) -> None:
        assert await stage.ask(GREETING + TO_SHOP) == b"\x05\x00\x05\x01\x00\x01" + bytes(6)
        await stage.proxy(opens((0, b"HTTP/1.1 502 No\r\n\r\n")))
        assert await stage.ask(GREETING + TO_SHOP) == b"\x05\x00\x05\x04\x00\x01" + bytes(6)

    played(play, attempts=1)


@pytest.mark.parametrize(
    "garbage", [b"\x05\x01\x00\x04" + bytes(20), b"\x05\x01\x00" + bytes(20), b"\x04\x01\x00\x50", b"\x16\x03\x01"]
)
def test_invalid_bytes_close_the_connection(played, garbage: bytes):
    async def play(stage: Stage) -> None:
        assert len(await stage.ask(garbage)) <= 2

    played(play)


# --- names and addresses


def test_pinned_names_are_sent_as_addresses(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(opens((0, OPENED)))
        for request in (CONNECT, b"GET http://shop.example/ HTTP/1.1\r\nHost: a\r\n\r\n"):
            reader, writer = await stage.connect()
            writer.write(request)
            await reader.readline()
            writer.close()
        assert proxy.heard[0] == b"CONNECT 93.184.216.34:443 HTTP/1.1\r\nHost: 93.184.216.34:443\r\n\r\n"
        assert proxy.heard[1] == (
            b"CONNECT 93.184.216.34:80 HTTP/1.1\r\nHost: 93.184.216.34:80\r\n\r\n"
            b"GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"
        )

    played(play, access=AccessRules(names=NamePolicy.PIN))


def test_trusted_names_are_not_resolved(played):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP)
        reader, writer = await stage.connect()
        writer.write(CONNECT.replace(b"shop", b"nobody-knows"))
        assert (await stage.head(reader)).startswith(b"HTTP/1.1 200")
        assert b"nobody-knows.example" in proxy.heard[0]
        writer.close()

    played(play, access=AccessRules(names=NamePolicy.TRUST))
