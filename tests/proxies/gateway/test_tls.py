"""Proxies that are spoken to over TLS (P6)."""

from __future__ import annotations

import asyncio

import pytest

from lycosa.app.proxies.gateway import trusting
from tests.proxies.gateway.playing import LAST, OK, Stage, plays
from tests.proxies.gateway.test_tunnels import CONNECT, HTTP, OPENED, opens


def test_a_request_and_a_tunnel_go_through_a_tls_proxy(played_on_both, certificates):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(plays(OK), "https", "ann:secret@", certificates.context("good"))
        assert (await stage.ask(LAST)).endswith(b"hi")
        assert b"Proxy-Authorization: Basic " in proxy.heard[0]
        await stage.pool.remove([proxy.proxy.key])
        await stage.proxy(HTTP, "https", tls=certificates.context("good"))
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        await stage.head(reader)
        content = bytes(range(256)) * 8_000
        writer.write(content)
        assert await reader.readexactly(len(content)) == content
        writer.close()

    played_on_both(play, tls=trusting(certificates.folder / "ca.pem"))


def test_a_slow_side_pauses_the_other(played_on_both, certificates):
    sent = 0

    async def gushes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        while sent < 30_000_000:
            writer.write(b"x" * 99_990 + b"%09d\n" % sent)
            await writer.drain()
            sent += 100_000

    async def play(stage: Stage) -> None:
        await stage.proxy(opens((0, OPENED), then=gushes), "https", tls=certificates.context("good"))
        reader, writer = await stage.connect()
        writer.write(CONNECT)
        await stage.head(reader)
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 20_000_000
        whole = await reader.readexactly(30_000_000)
        pieces = [whole[at : at + 100_000] for at in range(0, 30_000_000, 100_000)]
        assert pieces == [b"x" * 99_990 + b"%09d\n" % (100_000 * number) for number in range(300)]
        writer.close()

    played_on_both(play, tls=trusting(certificates.folder / "ca.pem"))


@pytest.mark.parametrize("name", ["self-signed", "other", "expired"])
def test_a_proxy_with_a_wrong_certificate_is_not_trusted(played, certificates, name: str):
    async def play(stage: Stage) -> None:
        proxy = await stage.proxy(HTTP, "https", "ann:secret@", certificates.context(name))
        answer = await stage.ask(CONNECT.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert answer.startswith(b"HTTP/1.1 502 ")
        assert b"proxy not reached: TLS failed (certificate verify failed)" in answer.replace(b"_", b" ")
        assert proxy.heard in ([], [b""])  # and was told no password

    played(play, attempts=1, tls=trusting(certificates.folder / "ca.pem"))
