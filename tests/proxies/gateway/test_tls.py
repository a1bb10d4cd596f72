"""Proxies that are reached over TLS."""

from __future__ import annotations

import asyncio

import pytest

from lycosa.app.proxies.gateway import trusted_tls_context
from tests.proxies.gateway.harness import GET_AND_CLOSE, OK, RunningGateway, respond
from tests.proxies.gateway.test_tunnels import CONNECT, HTTP, OPENED, accept_tunnel


def test_a_request_and_a_tunnel_go_through_a_tls_proxy(run_on_both_loops, certificates):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(respond(OK), "https", "ann:secret@", certificates.context("good"))
        assert (await gateway.request(GET_AND_CLOSE)).endswith(b"hi")
        assert b"Proxy-Authorization: Basic " in proxy.received[0]
        await gateway.pool.remove([proxy.proxy.key])
        await gateway.add_proxy(HTTP, "https", tls=certificates.context("good"))
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        await gateway.read_head(reader)
        content = bytes(range(256)) * 8_000
        writer.write(content)
        assert await reader.readexactly(len(content)) == content
        writer.close()

    run_on_both_loops(scenario, tls=trusted_tls_context(certificates.folder / "ca.pem"))


def test_a_slow_side_pauses_the_other(run_on_both_loops, certificates):
    sent = 0

    async def send_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < 30_000_000:
            writer.write(b"x" * 99_990 + b"%09d\n" % sent)
            await writer.drain()
            sent += 100_000

    async def scenario(gateway: RunningGateway) -> None:
        await gateway.add_proxy(accept_tunnel((0, OPENED), then=send_much), "https", tls=certificates.context("good"))
        reader, writer = await gateway.connect()
        writer.write(CONNECT)
        await gateway.read_head(reader)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 20_000_000
        received = await reader.readexactly(30_000_000)
        pieces = [received[at : at + 100_000] for at in range(0, 30_000_000, 100_000)]
        assert pieces == [b"x" * 99_990 + b"%09d\n" % (100_000 * number) for number in range(300)]
        writer.close()

    run_on_both_loops(scenario, tls=trusted_tls_context(certificates.folder / "ca.pem"))


@pytest.mark.parametrize("name", ["self-signed", "other", "expired"])
def test_a_proxy_with_a_wrong_certificate_is_not_trusted(run, certificates, name: str):
    async def scenario(gateway: RunningGateway) -> None:
        proxy = await gateway.add_proxy(HTTP, "https", "ann:secret@", certificates.context(name))
        answer = await gateway.request(CONNECT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"proxy not reached: TLS failed (certificate verify failed)" in answer.replace(b"_", b" ")
        assert proxy.received in ([], [b""])  # the proxy got no password

    run(scenario, attempts=1, tls=trusted_tls_context(certificates.folder / "ca.pem"))
