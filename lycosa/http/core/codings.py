"""Decode bodies that libcurl cannot decode (RFC 9110 §8.4.1), as leniently as browsers do.

Examples: an uncompressed page labelled gzip, an unknown coding, junk after the compressed part, several gzip members, a
wrong checksum.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

CODINGS_MAX = 5
"""Maximum nested codings that are decoded (as in libcurl)."""

SNIFFED_BYTES = 512
"""Bytes at the start of a body that distinguish text from binary data."""

MEMBERS_MAX = 50
"""Maximum gzip members of a body, since the rest of the body is copied after each."""

GZIP = b"\x1f\x8b"
BINARY = bytes({*range(0x20)} - {*b"\t\n\f\r\x1b"})
UNKNOWN = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})


def decode_body(body: bytes, values: Iterable[str], limit: int, *, text: bool) -> bytes | None:
    """Decode a body by the `values` of its Content-Encoding fields. A coding that the body does not have is ignored.

    Returns at most `limit` + 1 bytes; None if the body is damaged or has a coding that is not supported here. With
    `text` (from the Content-Type), a binary result counts as damaged.
    """
    codings = [name for value in values for each in value.split(",") if (name := each.strip().lower())]
    decoded: bytes | None = body
    for coding in reversed(codings[-CODINGS_MAX:]):
        if decoded is None:
            return None
        if decoded.startswith(GZIP):
            decoded = _gunzip(decoded, limit + 1)
        elif coding in UNKNOWN and not _is_text(decoded):
            return None
        elif coding == "deflate" and not _is_text(decoded):
            decoded = _inflate(decoded, limit + 1)
    return None if decoded is None or (text and not _is_text(decoded)) else decoded[: limit + 1]


def _gunzip(body: bytes, size: int) -> bytes | None:
    """Return the decompressed members; None if the first one is damaged, or there are more than MEMBERS_MAX."""
    found: list[bytes] = []
    while body.startswith(GZIP) and size > 0:
        if len(found) == MEMBERS_MAX:
            return None
        # The last 8 bytes of a member are its checksum and length: try without them, in case they are wrong.
        member = _decompress(body, zlib.MAX_WBITS | 16, size) or _decompress(body[:-8], zlib.MAX_WBITS | 16, size)
        if member is None:
            break
        found.append(member[0])
        body = member[1]
        size -= len(member[0])
    return b"".join(found) if found else None


def _inflate(body: bytes, size: int) -> bytes | None:
    """Decode a zlib stream, or a raw deflate stream, which some servers send instead."""
    found = _decompress(body, zlib.MAX_WBITS, size) or _decompress(body, -zlib.MAX_WBITS, size)
    return found[0] if found else None


def _decompress(body: bytes, window: int, size: int) -> tuple[bytes, bytes] | None:
    """Return at most `size` decompressed bytes, and the bytes after the stream; None if the stream is damaged."""
    stream = zlib.decompressobj(window)
    try:
        found = stream.decompress(body, size)
    except zlib.error:
        return None
    return (found, stream.unused_data) if found or stream.eof else None


def _is_text(body: bytes) -> bool:
    head = body[:SNIFFED_BYTES]
    return len(head) == len(head.translate(None, BINARY))
