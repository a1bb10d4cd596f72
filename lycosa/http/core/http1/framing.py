"""Find the end of the body of an HTTP/1 message (RFC 9112 §6 and §7), and encode chunks.

Ambiguous messages are refused, not repaired: both Content-Length and Transfer-Encoding, several lengths, any coding but
`chunked`. A chunked body is decoded and encoded again, so extensions, blanks and trailers of the sender are dropped.
"""

from __future__ import annotations

import re
from typing import Protocol

from lycosa.core.errors import BadMessage
from lycosa.http.core.http1.head import RequestHead, ResponseHead, elements

CHUNK_LINE_MAX = 256

TRAILERS_MAX = 8_192

LENGTH = re.compile(rb"[0-9]{1,18}")
CHUNK = re.compile(rb"(?P<size>[0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
LAST_CHUNK = b"0\r\n\r\n"
WITHOUT_BODY = frozenset({204, 304})


class BodyReader(Protocol):
    """Reads a body to its end. `done`: whether the end was read.

    `open_ended`: the body ends when the connection is closed.
    """

    done: bool
    open_ended: bool

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the content of the body in `data`, and the bytes after its end. Raises `BadMessage`."""


class ContentLengthReader:
    """A body of `size` bytes."""

    open_ended = False

    def __init__(self, size: int) -> None:
        self.size = self._left = size
        self.done = not size

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        if len(data) < self._left:
            self._left -= len(data)
            return data, b""
        content, rest = data[: self._left], data[self._left :]
        self._left, self.done = 0, True
        return content, rest


class UntilCloseReader:
    """A body that ends when the connection is closed."""

    done, open_ended = False, True

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        return data, b""


class ChunkedReader:
    """A chunked body (RFC 9112 §7.1). Trailers are dropped, as the RFC allows."""

    open_ended = False

    def __init__(self) -> None:
        self.done = False
        self._kept = b""
        self._left = 0
        self._between = False
        self._trailers: int | None = None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        data = self._kept + data if self._kept else data  # the part of a line from the previous call
        parts: list[bytes] = []
        at = 0
        while not self.done:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                self._left -= len(part)
                at += len(part)
                if self._left:
                    break
                self._between = True
            step = self._line(data, at)
            if not step:
                break
            at += step
        rest = data[at:]
        self._kept = b"" if self.done else rest
        return b"".join(parts), rest if self.done else b""

    def _line(self, data: bytes, at: int) -> int:
        """Read the line at an offset, and return its length; 0 if it is incomplete."""
        if self._between:  # the line break after a chunk
            if not b"\r\n".startswith(data[at : at + 2]):
                raise BadMessage("a chunk is longer than its size")
            self._between = len(data) - at < 2
            return 0 if self._between else 2
        end = data.find(b"\r\n", at)
        if end < 0:
            self._check(len(data) - at, data[at:])  # limits the memory that an endless line takes
            return 0
        line = data[at:end]
        self._check(len(line), line)
        if self._trailers is None:
            self._begin(line)
        elif line:
            self._trailers += len(line) + 2
        else:
            self.done = True
        return len(line) + 2

    def _begin(self, line: bytes) -> None:
        found = CHUNK.fullmatch(line)
        if found is None:
            raise BadMessage("a chunk does not begin with its size")
        self._left = int(found["size"], 16)
        if not self._left:
            self._trailers = 0

    def _check(self, length: int, line: bytes) -> None:
        if self._trailers is None and length > CHUNK_LINE_MAX:
            raise BadMessage("the size line of a chunk is too long")
        if self._trailers is not None and self._trailers + length > TRAILERS_MAX:
            raise BadMessage(f"more than {TRAILERS_MAX:,} bytes after the last chunk", 431)
        if b"\n" in line or b"\0" in line:
            raise BadMessage("a line between chunks contains a control character")


def encode_chunk(data: bytes) -> bytes:
    """Return the data as one chunk; b"" for no data, because an empty chunk would end the body."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


def request_body_reader(head: RequestHead) -> BodyReader:
    """Return the reader of a request's body (RFC 9112 §6.3). Raises `BadMessage`."""
    codings, lengths = head.values(b"transfer-encoding"), head.values(b"content-length")
    if not codings:
        return ContentLengthReader(_length(lengths)) if lengths else ContentLengthReader(0)
    if lengths:
        raise BadMessage("both Content-Length and Transfer-Encoding (RFC 9112 §6.1)")
    if not head.minor:
        raise BadMessage("Transfer-Encoding in HTTP/1.0 (RFC 9112 §6.1)")
    if elements(codings) != [b"chunked"]:
        raise BadMessage("a Transfer-Encoding other than chunked", 501)
    return ChunkedReader()


def response_body_reader(head: ResponseHead, method: bytes) -> BodyReader:
    """Return the reader of the body of a response to this method (RFC 9112 §6.3). Raises `BadMessage`."""
    codings, lengths = head.values(b"transfer-encoding"), head.values(b"content-length")
    if codings and (lengths or elements(codings) != [b"chunked"] or not head.minor):
        raise BadMessage("the end of the response is ambiguous")
    length = _length(lengths) if lengths else None  # checked even if it is not used: it may be invalid
    if method == b"HEAD" or head.status in WITHOUT_BODY or head.status < 200:
        return ContentLengthReader(0)
    if codings:
        return ChunkedReader()
    return UntilCloseReader() if length is None else ContentLengthReader(length)


def _length(values: list[bytes]) -> int:
    if len(values) != 1 or not LENGTH.fullmatch(values[0]):
        raise BadMessage("Content-Length is not one number (RFC 9112 §6.3)")
    return int(values[0])
