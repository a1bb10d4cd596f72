"""The datagram shell: runs a `DhtNode` on a UDP socket of its own.

It feeds datagrams to the node, sends what the node wants to send, and calls its timer. A wake-up reads up to
DATAGRAMS_PER_WAKEUP datagrams, because it costs several times as much as a datagram. Replies leave from the socket that
received the query (BEP 45), so each bound address has its own shell.

Datagrams that the kernel does not accept (full buffer, no route, a firewall) are dropped and counted: the network may
lose them anyway, and the node repeats or times out.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.dht.core.events import Event
from lycosa.dht.core.node import DhtNode
from lycosa.infra.web.bind_errors import bind_error_text

DATAGRAMS_PER_WAKEUP = 64
"""Other callbacks of the loop run between batches of this size."""

DATAGRAM_MAX = 8192
"""Maximum bytes read of a datagram. KRPC messages fit into an MTU of 1,500; longer ones are cut, and do not decode."""

RECEIVE_BUFFER_BYTES = 4 << 20
"""Requested size of the kernel's buffer, for bursts while the process is busy. The kernel may grant less."""

IPV4_ENDPOINT_BYTES = 6
Address = tuple[str, int] | tuple[str, int, int, int]


def bind_udp(host: str, port: int) -> socket.socket:
    """Return a non-blocking UDP socket bound to an IP address. Port 0 means any free port. Raises `UsageError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has a node of its own (BEP 32)
        sock.bind((host, port))
    except (OSError, UnicodeError) as error:
        sock.close()
        where = f"[{host}]:{port}" if family == socket.AF_INET6 else f"{host}:{port}"
        raise UsageError(f"--bind {where}: cannot listen there: {bind_error_text(error)}") from None
    return sock


def pack_address(address: Address) -> bytes:
    """Return the compact endpoint of a socket address."""
    host, port = address[0], address[1]
    if ":" not in host:
        return socket.inet_aton(host) + port.to_bytes(2)
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0]) + port.to_bytes(2)


def unpack_endpoint(endpoint: bytes) -> tuple[str, int]:
    """Return the socket address of a compact endpoint."""
    family = socket.AF_INET if len(endpoint) == IPV4_ENDPOINT_BYTES else socket.AF_INET6
    return socket.inet_ntop(family, endpoint[:-2]), int.from_bytes(endpoint[-2:])


class DatagramShell:
    """A node on its socket. `on_event` is called with each event of the node, in the event loop."""

    def __init__(self, node: DhtNode, sock: socket.socket, on_event: Callable[[Event], None]) -> None:
        self.node, self._socket, self._on_event = node, sock, on_event
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0.0
        self.unsent_count = 0
        """Datagrams that the kernel did not accept."""

    def now(self) -> float:
        """Return the time that the node is given: monotonic, in seconds."""
        return self._loop.time()

    def start(self) -> None:
        """Begin to read. Call it after `node.start`."""
        self._loop.add_reader(self._socket, self._read)
        self.flush()

    def close(self) -> None:
        """Stop reading and close the socket."""
        self._loop.remove_reader(self._socket)
        if self._timer:
            self._timer.cancel()
        self._socket.close()

    def flush(self) -> None:
        """Send what the node wants to send, report its events, and set its timer. Call it after every operation."""
        self._send()
        while event := self.node.next_event():
            self._on_event(event)
        self._send()  # a handler of an event may have started an operation
        self._set_timer()

    def _read(self) -> None:
        receive, node, now = self._socket.recvfrom, self.node, self.now()
        for _ in range(DATAGRAMS_PER_WAKEUP):
            try:
                data, address = receive(DATAGRAM_MAX)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # an ICMP error for an earlier datagram
                continue
            node.receive_datagram(data, pack_address(address), now)
        self.flush()

    def _send(self) -> None:
        send = self._socket.sendto
        for data, endpoint in self.node.datagrams_to_send():
            try:
                send(data, unpack_endpoint(endpoint))
            except OSError:
                self.unsent_count += 1

    def _set_timer(self) -> None:
        due = self.node.next_timer()
        if self._timer and due == self._timer_due:
            return
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer, self._timer_due = self._loop.call_at(due, self._run_timer), due

    def _run_timer(self) -> None:
        self._timer = None
        self.node.handle_timer(self.now())
        self.flush()
