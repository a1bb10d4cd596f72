"""The datagram shell on real sockets: batches, full buffers, errors, closing."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

import pytest

from lycosa.dht import udp
from lycosa.dht.core.endpoints import AllowedNetworks, pack
from lycosa.dht.core.events import Event, QueryFinished
from lycosa.dht.core.node import DhtNode
from lycosa.dht.core.node_config import NodeConfig
from lycosa.dht.udp import DATAGRAMS_PER_WAKEUP, DatagramShell, bind_udp, pack_address, unpack_endpoint
from lycosa.infra.web.listening import PortInUse

PING = b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:%02d1:y1:qe"
CONFIG = NodeConfig(allowed_networks=AllowedNetworks(["127.0.0.0/8", "::1"]))


def open_shell(ip: str = "127.0.0.1", on_event: Callable[[Event], None] = lambda _: None) -> DatagramShell:
    sock = bind_udp(pack(ip, 0))
    shell = DatagramShell(DhtNode(pack_address(sock.getsockname()), CONFIG, os.urandom), sock, on_event)
    shell.node.start(None, [], shell.now())
    return shell


def client() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.9", 0))
    sock.setblocking(False)
    return sock


async def receive(sock: socket.socket, count: int) -> list[bytes]:
    async with asyncio.timeout(60):
        return [await asyncio.get_running_loop().sock_recv(sock, 2048) for _ in range(count)]


@pytest.mark.parametrize("endpoint", ["127.0.0.1", "::1", "2001:db8::1"])
def test_a_socket_address_is_packed_into_an_endpoint_and_unpacked_again(endpoint: str) -> None:
    assert unpack_endpoint(pack_address((endpoint, 6881))) == (endpoint, 6881)


def test_the_zone_of_a_link_local_address_is_no_part_of_the_endpoint() -> None:
    assert pack_address(("fe80::1%eth0", 1, 0, 2)) == pack_address(("fe80::1", 1))


def test_a_port_in_use_is_named() -> None:
    sock = bind_udp(pack("127.0.0.1", 0))
    place = f"127.0.0.1:{sock.getsockname()[1]}"
    with sock, pytest.raises(PortInUse, match=f"--bind {place}: cannot listen there: address already in use"):
        bind_udp(pack_address(sock.getsockname()))


def test_datagrams_that_one_wake_up_leaves_are_read_by_the_next_ones() -> None:
    async def run() -> None:
        shell = open_shell()
        with client() as sock:
            limit = 50  # answers to one address at once
            for number in range(DATAGRAMS_PER_WAKEUP + 16):
                sock.sendto(PING % (number % 100), unpack_endpoint(shell.node.endpoint))
            shell.start()
            answers = await receive(sock, limit)
        assert len(set(answers)) == limit
        assert shell.node.traffic.queries_in == DATAGRAMS_PER_WAKEUP + 16
        shell.close()

    asyncio.run(run())


class FullSocket(socket.socket):
    """A socket that has no room for the next `refusals` datagrams."""

    refusals = 0

    def sendto(self, *arguments: object) -> int:  # type: ignore[override]
        if self.refusals:
            self.refusals -= 1
            raise BlockingIOError
        return super().sendto(*arguments)  # type: ignore[call-overload]


def full_shell(refusals: int) -> DatagramShell:
    bound = bind_udp(pack("127.0.0.1", 0))
    sock = FullSocket(fileno=bound.detach())
    sock.refusals = refusals
    # Loopback is not allowed, so the node does not ping the senders of queries.
    shell = DatagramShell(DhtNode(pack_address(sock.getsockname()), NodeConfig(), os.urandom), sock, lambda _: None)
    shell.node.start(None, [], shell.now())
    return shell


def test_datagrams_wait_while_the_buffer_is_full() -> None:
    async def run() -> None:
        shell = full_shell(refusals=2)
        with client() as sock:
            for number in range(20):
                sock.sendto(PING % number, unpack_endpoint(shell.node.endpoint))
            shell.start()
            assert len(set(await receive(sock, 20))) == 20
        assert shell.dropped_count == 0
        shell.close()

    asyncio.run(run())


def test_a_bounded_number_of_datagrams_waits_and_the_others_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        monkeypatch.setattr(udp, "UNSENT_MAX", 5)
        shell = full_shell(refusals=1)
        with client() as sock:
            for number in range(20):
                sock.sendto(PING % number, unpack_endpoint(shell.node.endpoint))
            shell.start()
            await receive(sock, 5)
        assert shell.dropped_count == 15
        shell.close()

    asyncio.run(run())


def test_a_datagram_that_the_kernel_refuses_to_send_is_counted_as_dropped_and_its_query_fails() -> None:
    async def run() -> None:
        events: list[Event] = []
        shell = open_shell(on_event=events.append)
        shell.start()
        shell.node.ping(pack("192.0.2.1", 1), shell.now())  # invalid argument, as the socket is bound to loopback
        shell.flush()
        assert shell.dropped_count == 1
        sent_at = shell.now()
        while not (finished := [event for event in events if isinstance(event, QueryFinished)]):
            assert shell._timer
            assert shell._timer_due < sent_at + 60
            shell._run_timer()  # at once, instead of when it is due
        assert [event.node_id for event in finished] == [None]
        shell.close()

    asyncio.run(run())


def test_an_answer_becomes_an_event_and_a_closed_shell_does_nothing_more() -> None:
    async def run() -> None:
        events: asyncio.Queue[Event] = asyncio.Queue()
        asked, asking = open_shell("127.0.0.2"), open_shell("127.0.0.3", events.put_nowait)
        asked.start()
        asking.start()
        asking.node.ping(asked.node.endpoint, asking.now())
        asking.flush()
        async with asyncio.timeout(60):
            while not isinstance(event := await events.get(), QueryFinished):
                pass
        assert event.node_id == asked.node.node_id
        asked.close()
        asking.close()
        asking.node.ping(asked.node.endpoint, asking.now())
        asking.flush()

    asyncio.run(run())
