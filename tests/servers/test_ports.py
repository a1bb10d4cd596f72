"""Reserved ports: closed until a server listens there, and given to no other socket."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from tests.servers.ports import ReservedPort, closed_port


def listen(address: str, port: int) -> socket.socket:
    return socket.create_server((address, port), family=socket.AF_INET6 if ":" in address else socket.AF_INET)


def test_connections_are_refused_before_and_after_a_server_listens():
    with ReservedPort() as port:
        for _ in range(2):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port.number))
            with listen("127.0.0.1", port.number):
                socket.create_connection(("127.0.0.1", port.number)).close()


def test_a_reserved_port_cannot_be_bound_by_others():
    with ReservedPort() as port, socket.socket() as other:
        with pytest.raises(OSError, match="in use") as refused:
            other.bind(("127.0.0.1", port.number))
        assert refused.value.errno == errno.EADDRINUSE


def test_the_same_number_is_reserved_at_several_addresses():
    with ReservedPort("127.0.0.2", "127.0.0.1", "127.0.0.3") as port:
        for address in ("127.0.0.1", "127.0.0.2", "127.0.0.3"):
            with listen(address, port.number):
                pass


def test_a_number_in_use_at_one_address_is_skipped(monkeypatch):
    with socket.create_server(("127.0.0.2", 0)) as taken:
        numbers = iter([taken.getsockname()[1]])

        class Socket(socket.socket):
            """Gives the first socket a number that is in use at the other address."""

            def bind(self, address):
                host, port = address
                super().bind((host, port or next(numbers, 0)))

        monkeypatch.setattr("tests.servers.ports.socket.socket", Socket)
        with ReservedPort("127.0.0.1", "127.0.0.2") as port:
            assert port.number != taken.getsockname()[1]


def test_a_given_number_is_reserved_unless_it_is_in_use():
    with ReservedPort() as port, ReservedPort(port=port.number) as second:
        assert second.number == port.number
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        ReservedPort(port=taken.getsockname()[1])


def test_an_event_loop_can_listen_on_a_closed_port():
    async def main() -> None:
        port = closed_port()
        async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            assert await reader.read() == b""
            writer.close()

    asyncio.run(main())
