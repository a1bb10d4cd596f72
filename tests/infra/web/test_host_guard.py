"""A server on loopback answers only under names that are its own (D4): no other site can read it by DNS rebinding."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse

from lycosa.infra.web.host_guard import HostGuard

SITE = HostGuard(PlainTextResponse("here"), ["Torrents.example"])


def answer(host: str) -> tuple[int, bytes]:
    """Return the status and body of the answer to a request with this Host."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", host.encode()), (b"x-forwarded-for", b"8.8.8.8")]
    scope = {"type": "http", "method": "GET", "path": "/", "headers": headers}
    asyncio.run(SITE(scope, None, send))
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "127.0.0.77", "localhost", "LOCALHOST.:80", "[::1]:8080", "torrents.example:443"]
)
def test_requests_under_the_own_names_of_a_server_are_answered(host: str) -> None:
    assert answer(host) == (200, b"here")


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "", "[", "sub.torrents.example", "localhost.evil"]
)
def test_requests_under_other_names_are_refused(host: str) -> None:
    status, body = answer(host)
    assert status == 421
    assert b"--server-name" in body
