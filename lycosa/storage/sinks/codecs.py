"""Compression of a file that grows: each flush appends a separate frame, so the file can be cut after any flush.

Readers (`zcat`, `zstdcat`, pandas) read successive frames as one file.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

GZIP_LEVEL = 6
ZSTD_LEVEL = 3

BEGINNING_MAX = 1024**2
"""Bytes at the beginning of a file that are read to find its header."""

PIECE_BYTES = 64 * 1024


class Codec(NamedTuple):
    """`compress` returns a frame, which begins with `magic`; `decompressor` creates a decompressor for one frame.

    `feed(decompressor, data)` returns the part of `data` after the end of the frame.
    """

    suffix: str
    magic: bytes
    compress: Callable[[bytes], bytes]
    decompressor: Callable[[], Any]
    feed: Callable[[Any, bytes], bytes]

    def beginning(self, data: bytes) -> bytes:
        """Decompress the first bytes of a file, which may end within a frame. Raises ValueError."""
        if not self.suffix:
            return data
        try:
            found: bytes = self.decompressor().decompress(data, BEGINNING_MAX)
        except Exception as error:
            raise ValueError(str(error)) from error
        return found

    def end_of_frames(self, pieces: Iterable[bytes]) -> int:
        """Return the number of bytes in complete frames. Raises ValueError if some bytes do not belong to a frame."""
        end = read = 0
        frame = self.decompressor()
        for piece in pieces:
            rest = piece
            read += len(piece)
            while rest:
                try:
                    rest = self.feed(frame, rest)
                except Exception as error:
                    raise ValueError(str(error)) from error
                if frame.eof:
                    end, frame = read - len(rest), self.decompressor()
        return end


def codec_of(suffix: str) -> Codec:
    """Return the codec for "", ".gz" or ".zst"."""
    if suffix == ".zst":
        # The import is slow, and few outputs need it.
        if sys.version_info >= (3, 14):
            from compression import zstd
        else:
            from backports import zstd
        magic = b"\x28\xb5\x2f\xfd"
        return Codec(suffix, magic, lambda data: zstd.compress(data, ZSTD_LEVEL), zstd.ZstdDecompressor, _feed_zstd)
    return GZIP if suffix == ".gz" else PLAIN


def _feed_zstd(frame: Any, data: bytes) -> bytes:
    frame.decompress(data, PIECE_BYTES)
    while not (frame.eof or frame.needs_input):
        frame.decompress(b"", PIECE_BYTES)
    return bytes(frame.unused_data)


def _feed_gzip(frame: Any, data: bytes) -> bytes:
    frame.decompress(data, PIECE_BYTES)
    while frame.unconsumed_tail and not frame.eof:
        frame.decompress(frame.unconsumed_tail, PIECE_BYTES)
    return bytes(frame.unused_data)


PLAIN = Codec("", b"", bytes, bytes, lambda _frame, _data: b"")
GZIP = Codec(
    ".gz",
    b"\x1f\x8b",
    lambda data: gzip.compress(data, GZIP_LEVEL, mtime=0),
    lambda: zlib.decompressobj(wbits=31),
    _feed_gzip,
)
