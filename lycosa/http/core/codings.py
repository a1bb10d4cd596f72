"""Content codings that are not what they say (RFC 9110 §8.4.1): a body as it came in, the body that was meant out.

libcurl decodes what is right. This is for the rest, as browsers take it: a page called gzip that is not compressed, an
unknown coding, junk behind the compressed part, several gzip members, a wrong checksum. Bounded: never more than asked.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable

CODINGS_MAX = 5
"""Codings one within the other that are taken off (as libcurl does)."""

LOOKED_AT = 512
"""Bytes at the start of a body that tell text from anything else."""

MEMBERS_MAX = 50
"""Gzip members that are read, one behind the other; each costs a copy of all that is behind it."""

GZIP = b"\x1f\x8b"
BINARY = bytes({*range(0x20)} - {*b"\t\n\f\r\x1b"})
UNKNOWN = frozenset({"br", "zstd", "compress", "x-compress", "dcb", "dcz"})


def decoded(body: bytes, values: Iterable[str], limit: int, *, text: bool) -> bytes | None:
    """Take off the codings that `values` of Content-Encoding name, as far as they are there.

    Return at most `limit` + 1 bytes, or None for what cannot be read: damaged, or compressed in a way unknown here.
    `text` says that what comes out is called text.
    """
    codings = [name for value in values for each in value.split(",") if (name := each.strip().lower())]
    left: bytes | None = body
    for coding in reversed(codings[-CODINGS_MAX:]):
        if left is None:
            return None
        if left.startswith(GZIP):
            left = _gunzipped(left, limit + 1)
        elif coding in UNKNOWN and not _is_text(left):
            return None
        elif coding == "deflate" and not _is_text(left):
            left = _inflated(left, limit + 1)
    return None if left is None or (text and not _is_text(left)) else left[: limit + 1]


def _gunzipped(body: bytes, size: int) -> bytes | None:
    """Return what the gzip members hold, without what comes behind them; None when the first is damaged, or there are
    too many."""
    found: list[bytes] = []
    while body.startswith(GZIP) and size > 0:
        if len(found) == MEMBERS_MAX:
            return None
        # A checksum that is wrong is no reason to lose a page: without its last 8 bytes a member has none.
        member = _unpacked(body, zlib.MAX_WBITS | 16, size) or _unpacked(body[:-8], zlib.MAX_WBITS | 16, size)
        if member is None:
            break
        found.append(member[0])
        body = member[1]
        size -= len(member[0])
    return b"".join(found) if found else None


def _inflated(body: bytes, size: int) -> bytes | None:
    """Return what a zlib stream holds, or a bare deflate stream, which some call so."""
    found = _unpacked(body, zlib.MAX_WBITS, size) or _unpacked(body, -zlib.MAX_WBITS, size)
    return found[0] if found else None


def _unpacked(body: bytes, window: int, size: int) -> tuple[bytes, bytes] | None:
    """Return what can be unpacked, at most `size` bytes, and what is behind it; None when it is damaged."""
    stream = zlib.decompressobj(window)
    try:
        found = stream.decompress(body, size)
    except zlib.error:
        return None
    return (found, stream.unused_data) if found or stream.eof else None


def _is_text(body: bytes) -> bool:
    head = body[:LOOKED_AT]
    return len(head) == len(head.translate(None, BINARY))
