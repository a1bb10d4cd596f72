"""Writing to a peer that is gone, on the loop of asyncio and on uvloop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import uvloop

from lycosa.infra.connections import is_closed, write
from lycosa.infra.web.http_server import HttpServer, ServerRequest, ServerResponse

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: a close resets the connection."""

Play = Callable[[Awaitable[Any]], Any]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Play:
    """Run a story. An error that it does not see, in a callback, fails the test."""

    def played(story: Awaitable[Any]) -> Any:
        wrong: list[dict[str, Any]] = []

        async def watched() -> Any:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: wrong.append(context))
            async with asyncio.timeout(20):
                return await story

        with asyncio.Runner(loop_factory=request.param) as runner:
            result = runner.run(watched())
        assert wrong == []
        return result

    return played


async def joined() -> tuple[asyncio.StreamWriter, socket.socket]:
    ours, theirs = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=ours)
    return writer, theirs


async def over(writer: asyncio.StreamWriter) -> None:
    """Wait until a connection is closed, and its protocol was called."""
    while not writer.is_closing():  # noqa: ASYNC110  there is no event
        await asyncio.sleep(0.001)
    for _ in range(5):
        await asyncio.sleep(0)


def test_writing_to_a_connection_that_is_closed_is_an_os_error(play: Play) -> None:
    async def story() -> None:
        writer, theirs = await joined()
        writer.transport.abort()
        for _ in range(5):  # while it is about to be closed, and afterwards
            with pytest.raises(ConnectionResetError, match="reset by peer"):
                write(writer, b"x")
        theirs.close()

    play(story())


def test_writing_to_a_peer_that_went_away_is_an_os_error(play: Play) -> None:
    async def story() -> None:
        writer, theirs = await joined()
        theirs.close()
        while True:
            write(writer, b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0)

    with pytest.raises(OSError):
        play(story())


def test_data_that_is_written_arrives(play: Play) -> None:
    async def story() -> bytes:
        writer, theirs = await joined()
        write(writer, b"hello")
        received = await asyncio.to_thread(theirs.recv, 100)
        writer.close()
        await writer.wait_closed()
        theirs.close()
        return received

    assert play(story()) == b"hello"


def test_the_error_of_uvloop_for_a_closed_connection_is_recognised() -> None:
    async def story() -> None:
        writer, theirs = await joined()
        writer.transport.abort()
        await over(writer)
        with pytest.raises(RuntimeError) as caught:
            writer.write(b"x")
        assert is_closed(caught.value)
        theirs.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(story())
    assert not is_closed(RuntimeError("a mistake"))


def test_a_client_that_leaves_before_its_response_is_no_error(play: Play) -> None:
    async def story() -> None:
        writers: list[asyncio.StreamWriter] = []
        ended = asyncio.Event()

        async def answer(_: ServerRequest) -> ServerResponse:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            await over(writers[0])
            return ServerResponse(200, b"too late")

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            try:
                await requests.on_connect(reader, writer)
            finally:
                ended.set()

        requests = HttpServer(answer, 1)
        async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
            client = socket.create_connection(server.sockets[0].getsockname())
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await ended.wait()

    play(story())
