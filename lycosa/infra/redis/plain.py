"""Finds out that a server has no TLS, though its address says so.

It takes the beginning of TLS for that of a line and waits for the rest: a driver would wait as long for its answer.
"""

from __future__ import annotations

import socket
import ssl

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import RedisAddress

HANDSHAKE_MAX_S, PLAIN_MAX_S = 1.0, 0.5


def refuse_plain(address: RedisAddress) -> None:
    """Raise `UsageError` when TLS is meant and a server answers without it. Blocks, hardly ever for long."""
    if address.tls and any(_is_plain(node) for node in address.nodes):
        raise UsageError(
            f"{address.text}: there is no TLS on this port; without TLS write redis:// instead of rediss://"
        )


def _is_plain(node: tuple[str, int]) -> bool:
    """A slow server is not taken for one: it must answer to a plain question."""
    try:
        return not _greets(node) and _answers(node)
    except OSError:  # it is away, or has TLS and another reason
        return False


def _greets(node: tuple[str, int]) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # whose it is is looked at later
    with socket.create_connection(node, HANDSHAKE_MAX_S) as connection:
        try:
            context.wrap_socket(connection).close()
        except TimeoutError:
            return False
    return True


def _answers(node: tuple[str, int]) -> bool:
    with socket.create_connection(node, PLAIN_MAX_S) as connection:
        connection.sendall(b"PING\r\n")
        return connection.recv(1) in {b"+", b"-"}
