"""What is waited for when a Redis is away (C3)."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("redis")

from lycosa.infra.redis.connection import Server

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x5587>; the handler is closed"


def test_a_connection_that_is_found_closed_is_made_again() -> None:
    """Uvloop says so with an error of its own when a server has ended it in the same moment."""
    answers: list[object] = [RuntimeError(CLOSED), "there"]
    said: list[str] = []

    async def act() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    server = Server("redis://127.0.0.1:1/0", said.append)
    assert asyncio.run(server.patiently(act)) == "there"
    (line,) = said
    assert "no answer from the server (the connection was closed): waiting for it, 60 s at most" in line
    assert "TCPTransport" not in line


def test_errors_of_ours_are_not_waited_for() -> None:
    async def act() -> None:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        asyncio.run(Server("redis://127.0.0.1:1/0", print).patiently(act))
