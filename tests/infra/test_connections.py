"""Writing to a lost peer, on the event loops of asyncio and uvloop."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import uvloop

from lycosa.infra.connections import is_closed, write
from lycosa.infra.web.http_server import HttpServer, ServerRequest, ServerResponse
from tests.loops import LOOPS, run_on

RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection."""

RunScenario = Callable[[Awaitable[Any]], Any]


@pytest.fixture(params=LOOPS.values(), ids=LOOPS)
def run_scenario(request: pytest.FixtureRequest) -> RunScenario:
    """Return a function that runs a scenario on an event loop. A test runs once for each of LOOPS."""
    return partial(run_on, request.param)


async def connect_pair() -> tuple[asyncio.StreamWriter, socket.socket]:
    our_socket, their_socket = socket.socketpair()
    _, writer = await asyncio.open_unix_connection(sock=our_socket)
    return writer, their_socket


async def wait_closed(writer: asyncio.StreamWriter) -> None:
    """Wait until the connection is closed and its protocol was notified."""
    while not writer.is_closing():  # noqa: ASYNC110  there is no event
        await asyncio.sleep(0.001)
    for _ in range(5):
        await asyncio.sleep(0)


def test_writing_to_a_closed_connection_is_an_os_error(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        writer, their_socket = await connect_pair()
        writer.transport.abort()
        for _ in range(5):  # during the closing, and afterwards
            with pytest.raises(ConnectionResetError, match="reset by peer"):
                write(writer, b"x")
        their_socket.close()

    run_scenario(scenario())


def test_writing_to_a_lost_peer_is_an_os_error(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        writer, their_socket = await connect_pair()
        their_socket.close()
        while True:
            write(writer, b"x" * 1000)
            await writer.drain()
            await asyncio.sleep(0)

    with pytest.raises(OSError):
        run_scenario(scenario())


def test_written_data_arrives(run_scenario: RunScenario) -> None:
    async def scenario() -> bytes:
        writer, their_socket = await connect_pair()
        write(writer, b"hello")
        received = await asyncio.to_thread(their_socket.recv, 100)
        writer.close()
        await writer.wait_closed()
        their_socket.close()
        return received

    assert run_scenario(scenario()) == b"hello"


def test_the_error_of_uvloop_for_a_closed_connection_is_recognised() -> None:
    async def scenario() -> None:
        writer, their_socket = await connect_pair()
        writer.transport.abort()
        await wait_closed(writer)
        with pytest.raises(RuntimeError) as caught:
            writer.write(b"x")
        assert is_closed(caught.value)
        their_socket.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
    assert not is_closed(RuntimeError("a mistake"))


def test_a_client_that_disconnects_before_its_response_causes_no_error(run_scenario: RunScenario) -> None:
    async def scenario() -> None:
        writers: list[asyncio.StreamWriter] = []
        ended = asyncio.Event()

        async def answer(_: ServerRequest) -> ServerResponse:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
            client.close()
            await wait_closed(writers[0])
            return ServerResponse(200, b"too late")

        async def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writers.append(writer)
            try:
                await requests.on_connect(reader, writer)
            finally:
                ended.set()

        requests = HttpServer(answer, 1)
        async with await asyncio.start_server(on_connect, "127.0.0.1", 0) as server:
            client = socket.create_connection(server.sockets[0].getsockname())
            client.sendall(b"GET / HTTP/1.1\r\n\r\n")
            await ended.wait()

    run_scenario(scenario())
