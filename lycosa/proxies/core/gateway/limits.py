"""The limits of a gateway. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

BUFFER_MAX = 65_536
"""Maximum number of bytes buffered from a client before reading from it is paused."""

IDLE_CONNECTIONS_MAX = 512
IDLE_PER_PROXY_MAX = 16
IDLE_CONNECTION_S = 20.0
"""Maximum number of idle connections in total and per proxy, and the seconds for which each is kept."""

SWEEP_S = 1.0
"""Interval at which timeouts are checked, which is also their precision."""

LINGER_S = 2.0
"""Time for the client to read the response on a connection that we close; what it sends meanwhile is discarded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one gateway.

    clients         concurrent client connections
    per_client      concurrent connections from one address
    head_s          a request head or SOCKS greeting: from its first byte to its last
    idle_s          a connection without a request
    connect_s       TCP and TLS to a proxy
    handshake_s     the proxy's own connection to the host
    answer_s        until the next bytes of a response arrive, and until the client reads them
    tunnel_idle_s   a tunnel without traffic
    wait_s          until the pool has a proxy to lease
    attempts        number of proxies to try for one request
    lease_s         time after which the leases of a killed gateway expire
    grace_s         time for which open requests and tunnels may continue after a stop
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
