"""What the owner of a state and `lycosa frontier` say to each other over the Unix socket STATE/socket.

In each frame (`infra.unix_socket`) is msgpack. The owner speaks first:

    owner                                   client
    Hello(version, pid)  ---------------->
                         <----------------  Call(method, arguments)
    Answer(value) or Refusal(kind, message) ---------------->       and so on, one call at a time

A method is one of `frontier.ports.FrontierOperations`; its arguments are a tuple. Frames are bounded, and whatever is
not of this form ends the connection it came over, and nothing else.
"""

from __future__ import annotations

from typing import Any

import msgspec

from lycosa.core import errors
from lycosa.frontier.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    RequeueResult,
    Row,
    RowSlice,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.infra.unix_socket import error_named

VERSION = 2

SLICE_ROWS = 250
"""Rows that one call looks at or changes: so long, some milliseconds, the crawl stands still."""

WHOLE = frozenset({"verify", "compact"})
"""What works on everything at once: the crawl stands still meanwhile."""

METHODS: dict[str, tuple[Any, Any]] = {
    "stats": (tuple[()], FrontierStats),
    "next_due": (tuple[float], float | None),
    "push": (tuple[list[UrlRecord]], int),
    "commit": (tuple[()], None),
    "host": (tuple[str], HostView | None),
    "host_facts": (tuple[str], HostFacts | None),
    "segments": (tuple[()], list[SegmentView]),
    "hosts": (tuple[str, int], list[HostView]),
    "rows": (tuple[Selection, str, int], RowSlice),
    "find": (tuple[int, str], list[Row]),
    "requeue": (tuple[Selection, str | None, float, str, int], RequeueResult),
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
    return error_named(refusal.kind, refusal.message)
