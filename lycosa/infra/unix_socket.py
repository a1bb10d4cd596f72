"""Unix sockets with paths of any length, for processes of the same user."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOCKET_PATH_MAX = 107
"""Maximum bytes of the path of a Unix socket (unix(7))."""

CONNECT_TIMEOUT_S = 5.0
"""Seconds after which a listener with a full backlog counts as hung or stopped."""

BACKLOG_RETRY_S = 0.01
"""Pause between two tries while the backlog is full. The kernel does not report when this ends (connect(2), EAGAIN)."""


def listen(path: Path, backlog: int) -> socket.socket:
    """Listen at a path. Replaces the socket of an ended process. Only our user may connect. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with short_path(path) as short:
            listening.bind(short)
        path.chmod(0o600)  # not too late: nobody can connect before the socket listens
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


async def connect(path: Path) -> socket.socket:
    """Connect to the process that listens at `path`. Raises OSError if no process does."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with short_path(path) as short:
            await _connect_when_possible(connection, short)
    except BaseException:
        connection.close()
        raise
    return connection


async def _connect_when_possible(connection: socket.socket, path: str) -> None:
    # `loop.sock_connect` would take EAGAIN, which means a full backlog, for a connection in progress.
    try:
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            while True:
                try:
                    return connection.connect(path)
                except BlockingIOError:
                    await asyncio.sleep(BACKLOG_RETRY_S)
    except TimeoutError:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield `path`, or if that is too long for a socket, a short path through /proc."""
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        yield str(path)
        return
    # The system resolves the link in /proc when it binds or connects; after that the descriptor is no longer needed.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
