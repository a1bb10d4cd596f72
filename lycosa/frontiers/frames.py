"""What the owner of a state and `lycosa frontier` say to each other over the Unix socket STATE/socket.

A frame is its length in four bytes, big endian, and so many bytes of msgpack. The owner speaks first:

    owner                                   client
    Hello(version, pid)  ---------------->
                         <----------------  Call(method, arguments)
    Answer(value) or Refusal(kind, message) ---------------->       and so on, one call at a time

A method is one of `ports.FrontierOperations`; its arguments are a tuple. Frames are bounded, and whatever is not of
this form ends the connection it came over, and nothing else.
"""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from lycosa.core import errors
from lycosa.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    Moved,
    Row,
    Rows,
    SegmentView,
    Selection,
    UrlRecord,
)

VERSION = 2
FRAME_MAX = 32 << 20
"""Bytes of one frame; a stored request with its body fits in."""

SLICE_ROWS = 250
"""Rows that one call looks at or changes: so long, some milliseconds, the crawl stands still."""

SOCKET_PATH_MAX = 107
"""Bytes of the path of a Unix socket (unix(7))."""

WHOLE = frozenset({"verify", "compact"})
"""What works on everything at once: the crawl stands still meanwhile."""

LENGTH = struct.Struct(">I")

METHODS: dict[str, tuple[Any, Any]] = {
    "stats": (tuple[()], FrontierStats),
    "next_due": (tuple[float], float | None),
    "push": (tuple[list[UrlRecord]], int),
    "commit": (tuple[()], None),
    "host": (tuple[str], HostView | None),
    "host_facts": (tuple[str], HostFacts | None),
    "segments": (tuple[()], list[SegmentView]),
    "hosts": (tuple[str, int], list[HostView]),
    "rows": (tuple[Selection, str, int], Rows),
    "find": (tuple[int, str], list[Row]),
    "requeue": (tuple[Selection, str | None, float, str, int], Moved),
    "archive": (tuple[str], bool),
    "drop": (tuple[str], int),
    "verify": (tuple[()], list[str]),
    "compact": (tuple[()], tuple[int, int]),
}
"""The types of the arguments and of the answer."""


class Hello(msgspec.Struct, tag="hello", frozen=True):
    """The first word of the owner."""

    version: int
    pid: int


class Call(msgspec.Struct, tag="call", frozen=True):
    """A request. `arguments` are those of the method."""

    method: str
    arguments: msgspec.Raw


class Answer(msgspec.Struct, tag="answer", frozen=True):
    """What the method returned."""

    value: msgspec.Raw


class Refusal(msgspec.Struct, tag="refusal", frozen=True):
    """The exception that it raised: the name of its class in `core.errors`, and the message."""

    kind: str
    message: str


encode = msgspec.msgpack.Encoder().encode
decode_call = msgspec.msgpack.Decoder(Call).decode
decode_said = msgspec.msgpack.Decoder(Hello | Answer | Refusal).decode


def call(method: str, *arguments: object) -> bytes:
    """Return the body of a frame that asks for this."""
    return encode(Call(method, msgspec.Raw(encode(arguments))))


def error_of(refusal: Refusal) -> errors.LycosaError:
    """Return the exception that the owner meant."""
    kind = getattr(errors, refusal.kind, None)
    if not isinstance(kind, type) or not issubclass(kind, errors.LycosaError):
        kind = errors.StateError
    return kind(refusal.message)


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """Return the body of the next frame. Raises `asyncio.IncompleteReadError` at the end, ValueError when too long."""
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if size > FRAME_MAX:
        raise ValueError(f"a frame of {size:,} bytes, at most {FRAME_MAX:,}")
    return await reader.readexactly(size)


async def write_frame(writer: asyncio.StreamWriter, body: bytes) -> None:
    """Send a frame, and wait until the other side has taken enough of it."""
    writer.write(LENGTH.pack(len(body)))
    writer.write(body)
    await writer.drain()


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
