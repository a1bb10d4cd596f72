"""The limits of a gateway. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

BUFFER_MAX = 65_536
"""Bytes buffered from a client before reading is paused."""

IDLE_CONNECTIONS_MAX = 512
IDLE_PER_PROXY_MAX = 16
IDLE_CONNECTION_S = 20.0
"""Maximum number of idle connections to proxies, in total and per proxy (with a tunnel: per proxy and destination), and
maximum time for which each is kept."""

SWEEP_S = 1.0
"""Interval at which timeouts are checked, which is also their precision."""

LINGER_S = 2.0
"""Time for the client to read the response on a connection that we close. Bytes from the client are discarded."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one gateway. Names that end with _s are maximum times.

    clients         maximum number of concurrent client connections
    per_client      maximum number of concurrent connections from one address
    head_s          from the first to the last byte of a request head, or of the SOCKS messages before the tunnel; also
                    for the body of a request to the gateway itself
    idle_s          without a request on a client connection
    connect_s       for the TCP and TLS connection to a proxy
    handshake_s     for the connection of the proxy to the host
    answer_s        until the next bytes of a response arrive, and until the client reads them
    tunnel_idle_s   without traffic in a tunnel
    wait_s          until the pool has a proxy to lease
    attempts        maximum number of proxies to try for one request
    lease_s         until the leases of a killed gateway expire
    grace_s         for open requests and tunnels after a stop
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
