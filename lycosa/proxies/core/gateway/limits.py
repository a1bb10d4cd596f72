"""The bounds of a gateway. Times in seconds."""

from __future__ import annotations

from dataclasses import dataclass

BUFFER_MAX = 65_536
"""Bytes of a client that are kept while nobody takes them; then it is read no more."""

IDLE_PROXIES_MAX = 512
IDLE_EACH_MAX = 16
IDLE_S = 20.0
"""Connections to proxies that are kept for the next request: in all, to each, and for how long."""

SWEEP_S = 1.0
"""How often times are looked at: a limit is kept to that."""

LINGER_S = 2.0
"""A client that we are done with may still read its answer for so long, while what it sends is thrown away."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one gateway and one client may take.

    clients         connections of clients at a time
    per_client      those from one address
    head_s          a request line with its fields, a SOCKS greeting: from its first byte to its last
    idle_s          a connection without a request
    connect_s       TCP and TLS to a proxy
    handshake_s     the proxy's own connection to the host
    answer_s        until the next bytes of an answer come, or are taken
    tunnel_idle_s   a tunnel in which nothing moves
    wait_s          until the pool has a proxy free
    attempts        proxies that are tried for one request
    lease_s         what a crashed gateway keeps from others
    grace_s         what is under way may go on for so long at the end
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
