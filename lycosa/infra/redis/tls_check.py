"""Detect early that an address demands TLS (rediss://), but its server does not use it.

Such a server takes the handshake for the start of a command and waits for the rest, until the driver's timeout.
"""

from __future__ import annotations

import socket
import ssl

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import RedisAddress

HANDSHAKE_TIMEOUT_S, PLAIN_TIMEOUT_S = 1.0, 0.5


def refuse_missing_tls(address: RedisAddress) -> None:
    """Raise `UsageError` if the address demands TLS and a server answers without it. Blocks at most 3 s per node."""
    if address.tls and any(_answers_only_plain(node) for node in address.nodes):
        raise UsageError(
            f"{address.text}: there is no TLS on this port; without TLS write redis:// instead of rediss://"
        )


def _answers_only_plain(node: tuple[str, int]) -> bool:
    try:
        # A slow TLS server fails the handshake too: only an answer to a plain command proves that there is no TLS.
        return not _completes_handshake(node) and _answers_plain_ping(node)
    except OSError:  # the server is down, or has TLS and refuses the handshake for another reason
        return False


def _completes_handshake(node: tuple[str, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the driver verifies the certificate
    with socket.create_connection(node, HANDSHAKE_TIMEOUT_S) as connection:
        try:
            context.wrap_socket(connection).close()
        except TimeoutError:
            return False
    return True


def _answers_plain_ping(node: tuple[str, int]) -> bool:
    with socket.create_connection(node, PLAIN_TIMEOUT_S) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(1) in {b"+", b"-"}
