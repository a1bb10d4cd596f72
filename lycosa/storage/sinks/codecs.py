"""Compression of a file that grows: each flush appends a frame of its own, so that the file can be cut behind each.

Readers (`zcat`, `zstdcat`, pandas) take frames one after another for one file.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

from lycosa.core.errors import UsageError

GZIP_LEVEL = 6
ZSTD_LEVEL = 3

BEGINNING_MAX = 1024**2
"""Bytes of a file that are read to find its header."""


class Codec(NamedTuple):
    """`compress` returns a frame. `beginning` decompresses the first bytes of a file, which may end within a frame."""

    suffix: str
    compress: Callable[[bytes], bytes]
    beginning: Callable[[bytes], bytes]


def codec_of(suffix: str) -> Codec:
    """Return the codec for "", ".gz" or ".zst". Raises `UsageError` without the package for zstd."""
    if suffix == ".zst":
        zstd = _zstd_module()
        return Codec(suffix, lambda data: zstd.compress(data, ZSTD_LEVEL), _first(zstd.ZstdDecompressor))
    if suffix == ".gz":
        return Codec(
            suffix, lambda data: gzip.compress(data, GZIP_LEVEL, mtime=0), _first(lambda: zlib.decompressobj(31))
        )
    return PLAIN


def _first(decompressor: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def beginning(data: bytes) -> bytes:
        found: bytes = decompressor().decompress(data, BEGINNING_MAX)
        return found

    return beginning


def _zstd_module() -> Any:
    try:
        from compression import zstd  # type: ignore[import-not-found,unused-ignore]  # Python 3.14
    except ImportError:
        try:
            from backports import zstd
        except ImportError:
            raise UsageError(".zst needs the package backports.zstd: pip install 'lycosa[zstd]'") from None
    return zstd


PLAIN = Codec("", bytes, bytes)
