"""Runs a `DhtNode` on its own UDP socket.

A wake-up of the loop costs several times as much as a datagram, so each wake-up reads up to DATAGRAMS_PER_WAKEUP.
Replies leave from the socket that received the query (BEP 45), so each bound address has its own shell.

While the kernel's buffer is full, up to UNSENT_MAX datagrams wait. Other datagrams that the kernel rejects are dropped
and counted.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import deque
from collections.abc import Callable

from lycosa.core.errors import UsageError
from lycosa.dht.core.endpoints import text
from lycosa.dht.core.events import Event
from lycosa.dht.core.node import DhtNode
from lycosa.infra.web.listening import PortInUse

DATAGRAMS_PER_WAKEUP = 64

DATAGRAM_MAX = 4096
"""KRPC messages fit into 1,500 bytes. Datagrams longer than DATAGRAM_MAX are truncated and cannot be decoded."""

BUFFER_BYTES = 4 << 20
"""Requested size of the kernel's buffers, for bursts while the process is busy. The kernel may grant less."""

UNSENT_MAX = 1024
"""About a second of a node's bandwidth."""

IPV4_ENDPOINT_BYTES = 6
Address = tuple[str, int] | tuple[str, int, int, int]


def bind_udp(endpoint: bytes) -> socket.socket:
    """Return a non-blocking UDP socket bound to an endpoint. Port 0 means any free port.

    Raises `PortInUse`, `UsageError`.
    """
    address = unpack_endpoint(endpoint)
    family = socket.AF_INET if len(endpoint) == IPV4_ENDPOINT_BYTES else socket.AF_INET6
    try:
        sock = socket.socket(family, socket.SOCK_DGRAM)
    except OSError as error:  # a system without IPv6
        raise UsageError(f"--bind {text(endpoint)}: {_reason(error)}") from None
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)  # IPv4 has its own node (BEP 32)
        sock.bind(address)
    except OSError as error:
        sock.close()
        problem = PortInUse if error.errno == errno.EADDRINUSE else UsageError
        raise problem(f"--bind {text(endpoint)}: cannot listen there: {_reason(error)}") from None
    return sock


def _reason(error: OSError) -> str:
    # Python's message repeats the address.
    return (os.strerror(error.errno) if error.errno else str(error)).lower()


def pack_address(address: Address) -> bytes:
    """Return the compact endpoint of a socket address."""
    host, port = address[0], address[1]
    if ":" not in host:
        return socket.inet_aton(host) + port.to_bytes(2)
    return socket.inet_pton(socket.AF_INET6, host.partition("%")[0]) + port.to_bytes(2)


def unpack_endpoint(endpoint: bytes) -> Address:
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
        self._unsent: deque[tuple[bytes, bytes]] = deque()
        self._sources: dict[bytes, Address] = {}
        self._is_closed = False
        self.siblings: list[DatagramShell] = []
        """Shells of the other nodes. A node may give them work, such as contacts of their address family."""
        self.dropped_count = 0

    def now(self) -> float:
        return self._loop.time()

    def start(self) -> None:
        """Call it after `node.start`."""
        self._loop.add_reader(self._socket, self._read)
        self.flush()

    def close(self) -> None:
        """Unsent datagrams are dropped."""
        self._is_closed = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._timer:
            self._timer.cancel()
        self._socket.close()

    def flush(self) -> None:
        """Send datagrams, report events, and set the timer. Call this after every call to the node."""
        if self._is_closed:
            return
        self._send()
        while event := self.node.next_event():
            self._on_event(event)
        self._send()  # an event handler may have started an operation
        self._set_timer()
        for sibling in self.siblings:
            sibling.keep_time()

    def keep_time(self) -> None:
        if not self._is_closed:
            self._set_timer()

    def _read(self) -> None:
        receive, node, now, sources = self._socket.recvfrom, self.node, self.now(), self._sources
        for _ in range(DATAGRAMS_PER_WAKEUP):
            try:
                data, address = receive(DATAGRAM_MAX)
            except (BlockingIOError, InterruptedError):
                break
            except OSError:  # an ICMP error for an earlier datagram
                continue
            source = pack_address(address)
            sources[source] = address  # used for replies: it has the zone of a link-local address
            node.receive_datagram(data, source, now)
        self.flush()
        sources.clear()

    def _send(self) -> None:
        datagrams = self.node.datagrams_to_send()
        if self._unsent:
            self._wait_for_room(datagrams)
            return
        send, sources = self._socket.sendto, self._sources
        for number, (data, endpoint) in enumerate(datagrams):
            try:
                send(data, sources.get(endpoint) or unpack_endpoint(endpoint))
            except BlockingIOError:
                self._loop.add_writer(self._socket, self._send_waiting)
                self._wait_for_room(datagrams[number:])
                return
            except OSError:
                self.dropped_count += 1

    def _wait_for_room(self, datagrams: list[tuple[bytes, bytes]]) -> None:
        taken = UNSENT_MAX - len(self._unsent)
        self._unsent.extend(datagrams[:taken])
        self.dropped_count += len(datagrams[taken:])

    def _send_waiting(self) -> None:
        while self._unsent:
            data, endpoint = self._unsent[0]
            try:
                self._socket.sendto(data, unpack_endpoint(endpoint))
            except BlockingIOError:
                return
            except OSError:
                self.dropped_count += 1
            self._unsent.popleft()
        self._loop.remove_writer(self._socket)

    def _set_timer(self) -> None:
        due = self.node.next_timer()
        if self._timer and due == self._timer_due:
            return
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            self._timer, self._timer_due = self._loop.call_at(max(due, self.now()), self._run_timer), due

    def _run_timer(self) -> None:
        self._timer = None
        self.node.handle_timer(max(self.now(), self._timer_due))  # the loop may call half a millisecond early
        self.flush()
