"""Which failed calls are repeated, for how long, and what is reported (C3)."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("redis")

from lycosa.frontier.redis.server import crawl_server

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x5587>; the handler is closed"


def test_a_call_on_a_closed_connection_is_repeated() -> None:
    """Uvloop raises its own error if the server closes the connection at the same moment."""
    answers: list[object] = [RuntimeError(CLOSED), "response"]
    reports: list[str] = []

    async def call() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    server = crawl_server("redis://127.0.0.1:1/0", reports.append)
    assert asyncio.run(server.retry(call)) == "response"
    failed, resumed = reports
    assert "no answer from the server (the connection was closed): trying again for at most 60 s" in failed
    assert "TCPTransport" not in failed
    assert resumed == "redis://127.0.0.1:1/0: the server answers again"


def test_errors_of_other_kinds_are_raised_at_once() -> None:
    async def call() -> None:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        asyncio.run(crawl_server("redis://127.0.0.1:1/0", print).retry(call))
