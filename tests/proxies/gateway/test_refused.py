"""What the gateway refuses: wrong logins, private addresses, ambiguous requests, too many clients."""

from __future__ import annotations

import asyncio
import re
from base64 import b64encode

import pytest

from lycosa.core.errors import StateError, UsageError
from lycosa.http.core.private_addresses import AllowedPrivate
from lycosa.proxies.core.gateway.access_rules import AccessRules
from lycosa.proxies.gateway.gateway import open_listener
from tests.proxies.gateway.harness import GET, GET_AND_CLOSE, OK, RunningGateway, respond
from tests.proxies.gateway.test_tunnels import CONNECT, HTTP

POST = b"POST http://shop.example/ HTTP/1.1\r\nHost: shop.example\r\n"
SMUGGLED = b"GET http://shop.example/smuggled HTTP/1.1\r\nHost: shop.example\r\n\r\n"


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (POST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED, 400),
        (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n" + SMUGGLED, 400),
        (POST + b"Content-Length: 0\r\nContent-Length: 90\r\n\r\n" + SMUGGLED, 400),
        (POST + b"Content-Length: 0, 90\r\n\r\n" + SMUGGLED, 400),
        (POST + b"Content-Length : 90\r\n\r\n" + SMUGGLED, 400),
        (POST + b"X: y\r\n Content-Length: 90\r\n\r\n" + SMUGGLED, 400),
        (POST + b"X: y\nContent-Length: 90\r\n\r\n" + SMUGGLED, 400),
        (POST + b"X: y\rContent-Length: 90\r\n\r\n" + SMUGGLED, 400),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n" + SMUGGLED, 501),
        (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n" + SMUGGLED, 400),
        (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n" + SMUGGLED, 501),
        (POST + b"Connection: content-length\r\nContent-Length: 90\r\n\r\n" + b"x" * 90, 400),
        (POST + b"Expect: the-unexpected\r\n\r\n", 417),
        (POST + b"Host: other.example\r\n\r\n", 400),
        (b"GET http://shop.example/ HTTP/1.1\r\n\r\n", 400),
        (b"TRACE http://shop.example/ HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET https://shop.example/ HTTP/1.1\r\nHost: x\r\n\r\n", 501),
        (b"CONNECT shop.example HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"CONNECT http://shop.example:443/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\n\r\n", 505),
        (b"NONSENSE\r\n\r\n", 400),
        (b"GET http://shop.example/ HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 70_000, 431),
    ],
    ids=lambda value: repr(value)[-60:] if isinstance(value, bytes) else str(value),
)
def test_ambiguous_requests_are_refused(run, request_: bytes, status: int):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK))
        answer = await gateway.request(request_)
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        assert b"\r\nConnection: close\r\n" in answer
        assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1  # there is no second response
        assert not any(b"smuggled" in received for received in proxy.received)

    run(scenario)


def test_invalid_chunks_end_the_request(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        for bad in (b"5\r\nhello\r\n5\nhello", b"5\r\nhello, world", b"xyz\r\n"):
            answer = await gateway.request(POST + b"Transfer-Encoding: chunked\r\n\r\n" + bad + SMUGGLED)
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 502 "))
            assert answer.count(b"HTTP/1.1 ") == 1
        assert not any(b"smuggled" in received for received in proxy.received)

    run(scenario, attempts=1)


@pytest.mark.parametrize(
    "to",
    [
        b"127.0.0.1:443",
        b"localhost:443",
        b"10.0.0.1:443",
        b"169.254.169.254:80",
        b"[::1]:443",
        b"[::ffff:127.0.0.1]:443",
        b"0x7f000001:443",
        b"2130706433:443",
        b"017700000001:443",
        b"metadata.google.internal:80",
        b"inside.example:443",
        b"both.example:443",
        b"shop.example:25",
        b"shop.example:22",
    ],
)
def test_private_addresses_and_forbidden_ports_are_refused(run, to: bytes):
    """Refuse a name of a private address even if the upstream proxy would resolve the name."""

    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP)
        for request in (
            b"CONNECT %b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
            b"GET http://%b/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        ):
            answer = await gateway.request(request % to)
            assert answer.startswith(b"HTTP/1.1 403 "), answer
            assert b"--ports" in answer or b"--allow-private" in answer
        assert proxy.received == []
        assert gateway.pool.released == []  # no proxy was leased
        assert not gateway.context.counts.tunnels, "no tunnel was opened"

    run(scenario)


def test_allowed_private_destinations_are_open(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        for to in (b"10.9.9.9:443", b"inside.example:443", b"www.home.local:443"):
            reader, writer = await gateway.connect()
            writer.write(b"CONNECT %b HTTP/1.1\r\nHost: x\r\n\r\n" % to)
            assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200 ")
            writer.close()

    run(scenario, access=AccessRules(allowed=AllowedPrivate(["10.0.0.0/8", "home.local"])))


def test_an_unknown_name_is_a_502(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(respond(OK))
        answer = await gateway.request(GET_AND_CLOSE.replace(b"shop", b"nobody"))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"host not found" in answer
        assert gateway.pool.released == []

    run(scenario)


def test_wrong_logins_are_a_407(run):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK))
        for login in (
            b"",
            b"Basic " + b64encode(b"ann:wrong"),
            b"Bearer x",
            b"Basic " + b64encode(b"ann-wrong-x:secret"),
        ):
            field = b"\r\nProxy-Authorization: " + login if login else b""
            answer = await gateway.request(GET_AND_CLOSE.replace(b"\r\nConn", field + b"\r\nConn"))
            assert answer.startswith(b"HTTP/1.1 407 ")
            assert b'\r\nProxy-Authenticate: Basic realm="lycosa"' in answer
        assert proxy.received == []

    run(scenario, users={"ann": "secret"})


def test_a_client_may_log_in_over_the_same_connection(run):
    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(HTTP)
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        head = await gateway.read_head(reader)
        assert head.startswith(b"HTTP/1.1 407 ")
        await reader.readexactly(int(head.partition(b"Content-Length: ")[2].split(b"\r")[0]))
        writer.write(CONNECT.replace(b"\r\n\r\n", b"\r\nProxy-Authorization: Basic YW5uOnNlY3JldA==\r\n\r\n"))
        assert (await gateway.read_head(reader)).startswith(b"HTTP/1.1 200 ")
        writer.close()

    run(scenario, users={"ann": "secret"})


def test_repeated_wrong_logins_close_the_connection(run):
    async def scenario(gateway: RunningGateway) -> None:
        answer = await gateway.request(GET * 20)
        assert answer.count(b"HTTP/1.1 407 ") == 5

    run(scenario, users={"ann": "secret"})


def test_slow_heads_time_out(run, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lycosa.proxies.gateway.gateway.SWEEP_S", 0.02)

    async def scenario(gateway: RunningGateway) -> None:
        assert (await gateway.request(b"GET http://shop.ex")).startswith(b"HTTP/1.1 408 ")
        assert await gateway.request(b"\x05\x01") == b""

    async def idle(gateway: RunningGateway) -> None:
        assert await gateway.request() == b""  # a client that sends nothing

    run(scenario, head_s=0.1, idle_s=60.0)
    run(idle, head_s=60.0, idle_s=0.1)


def test_the_number_of_clients_is_limited(run):
    async def scenario(gateway: RunningGateway) -> None:
        some = [await gateway.connect() for _ in range(3)]
        reader, _ = await gateway.connect()
        assert await gateway.read_to_end(reader) == b""
        some[0][1].close()
        while gateway.context.counts.clients > 2:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        assert (await gateway.request(GET_AND_CLOSE)).startswith(b"HTTP/1.1 503 ")

    run(scenario, per_client=3)


# --- listening


@pytest.mark.parametrize("where", ["0.0.0.0:0", "[::]:0"])
def test_an_open_address_needs_accounts(where: str):
    with pytest.raises(UsageError, match="would be open to other machines: add --user NAME:PASSWORD, or listen on 127"):
        open_listener(where, has_accounts=False)
    with open_listener(where, has_accounts=True):
        pass


@pytest.mark.parametrize("where", ["127.0.0.1:0", ":0", "[::1]:0", "127.5.5.5:0", "localhost:0"])
def test_loopback_needs_no_accounts(where: str):
    with open_listener(where, has_accounts=False) as listener:
        assert listener.getsockname()[1]


@pytest.mark.parametrize("where", ["", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "no such host:1"])
def test_invalid_bind_addresses_are_refused(where: str):
    with pytest.raises(UsageError, match="--bind"):
        open_listener(where, has_accounts=False)


TAKEN = r"^--bind \S+: cannot listen there: address already in use$"


def test_a_port_in_use_is_reported():
    with open_listener("127.0.0.1:0", has_accounts=False) as listener, pytest.raises(StateError, match=TAKEN):
        open_listener(f"127.0.0.1:{listener.getsockname()[1]}", has_accounts=False)
