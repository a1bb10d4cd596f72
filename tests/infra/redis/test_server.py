"""Which failed calls are made again, for how long, and what is reported (C3)."""

from __future__ import annotations

import asyncio

import pytest

pytest.importorskip("redis")

from lycosa.frontier.redis.server import crawl_server

CLOSED = "unable to perform operation on <TCPTransport closed=True reading=False 0x5587>; the handler is closed"


def test_a_call_on_a_closed_connection_is_made_again() -> None:
    """Uvloop raises an error of its own when the server has closed the connection in the same moment."""
    answers: list[object] = [RuntimeError(CLOSED), "there"]
    reports: list[str] = []

    async def act() -> object:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    server = crawl_server("redis://127.0.0.1:1/0", reports.append)
    assert asyncio.run(server.retry(act)) == "there"
    failed, resumed = reports
    assert "no answer from the server (the connection was closed): trying again for at most 60 s" in failed
    assert "TCPTransport" not in failed
    assert resumed == "redis://127.0.0.1:1/0: the server answers again"


def test_errors_that_are_not_of_the_driver_are_raised_at_once() -> None:
    async def act() -> None:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError, match="a mistake"):
        asyncio.run(crawl_server("redis://127.0.0.1:1/0", print).retry(act))
