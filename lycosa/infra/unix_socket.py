"""How a process that owns a folder talks with others over a Unix socket in it: frames, and sockets with long paths.

A frame is its length in four bytes, big endian, and so many bytes.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lycosa.core import errors
from lycosa.infra.connections import write

FRAME_MAX = 32 << 20
"""Bytes of one frame; a stored request with its body fits in."""

SOCKET_PATH_MAX = 107
"""Bytes of the path of a Unix socket (unix(7))."""

CONNECT_MAX_S = 5.0
"""An owner with a full backlog that has accepted nobody after so long hangs, or was stopped."""

FULL_AGAIN_S = 0.01
"""The wait before a full backlog is tried again: the system does not say when there is room (connect(2), EAGAIN)."""

LENGTH = struct.Struct(">I")


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next frame. Raises `asyncio.IncompleteReadError` at the end, ValueError when too long."""
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if size > FRAME_MAX:
        raise ValueError(f"a frame of {size:,} bytes, at most {FRAME_MAX:,}")
    return await reader.readexactly(size)


async def write_frame(writer: asyncio.StreamWriter, body: bytes) -> None:
    """Send a frame, and wait until the other side has taken enough of it. Raises OSError when it is gone."""
    write(writer, LENGTH.pack(len(body)) + body)
    await writer.drain()


def listen(path: Path, backlog: int) -> socket.socket:
    """Put a socket there in place of what a dead owner left behind; only our own user may connect. Raises OSError."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with short_path(path) as short:
            listening.bind(short)
        path.chmod(0o600)  # nobody can connect before it listens
        listening.listen(backlog)
    except OSError:
        listening.close()
        raise
    return listening


async def connect(path: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to who listens there, whose backlog may be full. Raises OSError when nobody does, or accepts for long."""
    plug = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with short_path(path) as short:
            await _wait_for_room(plug, short)
        return await asyncio.open_unix_connection(sock=plug)
    except BaseException:
        plug.close()
        raise


async def _wait_for_room(plug: socket.socket, place: str) -> None:
    """Connect. The loops take EAGAIN, which says that the backlog is full, for a connection that is under way."""
    try:
        async with asyncio.timeout(CONNECT_MAX_S):
            while True:
                try:
                    return plug.connect(place)
                except BlockingIOError:
                    await asyncio.sleep(FULL_AGAIN_S)
    except TimeoutError:
        raise TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)) from None


def error_named(kind: str, message: str) -> errors.LycosaError:
    """Return the exception that the other side meant: one of `core.errors`, by the name of its class."""
    found = getattr(errors, kind, None)
    if not isinstance(found, type) or not issubclass(found, errors.LycosaError):
        found = errors.StateError
    return found(message)


@contextmanager
def short_path(path: Path) -> Iterator[str]:
    """Yield a path of this socket that is short enough for the system, however long it is."""
    if len(os.fsencode(path)) <= SOCKET_PATH_MAX:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
