"""The bounds of a gateway. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

BUFFER_MAX = 65_536
"""Bytes from a client that are buffered before reading from it is paused."""

IDLE_CONNECTIONS_MAX = 512
IDLE_PER_PROXY_MAX = 16
IDLE_CONNECTION_S = 20.0
"""Connections to proxies that are kept for the next request: in all, to each, and for how long."""

SWEEP_S = 1.0
"""Interval of timeout checks, which is their precision."""

LINGER_S = 2.0
"""How long a closed connection may still read its response, while what the client sends is discarded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds of one gateway.

    clients         concurrent client connections
    per_client      those from one address
    head_s          a request head or SOCKS greeting: from its first byte to its last
    idle_s          a connection without a request
    connect_s       TCP and TLS to a proxy
    handshake_s     the proxy's own connection to the host
    answer_s        until the next bytes of a response are received, or the client reads them
    tunnel_idle_s   a tunnel without traffic
    wait_s          until the pool has a proxy to lease
    attempts        proxies that are tried for one request
    lease_s         after this time the leases of a killed gateway expire
    grace_s         how long open requests and tunnels may continue after a stop
    """

    clients: int = 8_192
    per_client: int = 4_096
    head_s: float = 15.0
    idle_s: float = 75.0
    connect_s: float = 10.0
    handshake_s: float = 20.0
    answer_s: float = 60.0
    tunnel_idle_s: float = 600.0
    wait_s: float = 10.0
    attempts: int = 3
    lease_s: float = 60.0
    grace_s: float = 10.0
