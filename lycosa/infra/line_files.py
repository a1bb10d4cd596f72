"""Read and write text files that users exchange, plain or compressed (`.gz`, `.zst`).

The length of lines is limited. A new file appears only when it is complete.
"""

from __future__ import annotations

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

from lycosa.core.errors import StorageError, UsageError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

STREAM = "-"
"""The file name that means standard input or output."""
PART = ".part"
SUFFIXES = {".gz", ".zst"}
GZIP_LEVEL = 6
ZSTD_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
READ_ERRORS = (OSError, EOFError, zlib.error, zstd.ZstdError)
"""Exceptions that reading a compressed file may raise."""


def numbered_lines(stream: BinaryIO, max_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yield numbered lines, cut to `max_bytes` + 2 bytes, so that the caller still sees which lines are too long."""
    number = 0
    while line := stream.readline(max_bytes + 2):
        number += 1
        yield number, line
        while len(line) > max_bytes + 1 and not line.endswith(b"\n"):
            line = stream.readline(max_bytes + 2)


def decompressed(stream: BinaryIO, suffix: str) -> BinaryIO:
    """Decompress an open file by its suffix. Reading may raise READ_ERRORS."""
    if suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return cast(BinaryIO, zstd.ZstdFile(stream)) if suffix == ".zst" else stream


def file_size(stream: BinaryIO) -> int:
    """Return the size of a file in bytes; 0 if unknown."""
    try:
        found = os.fstat(stream.fileno())
    except OSError:
        return 0
    return found.st_size if stat.S_ISREG(found.st_mode) else 0


@contextmanager
def new_file(file: str, *, suffix: str = "") -> Iterator[BinaryIO]:
    """Open a new file, or standard output for `-`. The `suffix` selects the compression of a file.

    Raises `UsageError` if the file exists, `StorageError` if it cannot be written.
    """
    if file == STREAM:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path, draft = Path(file), Path(file + PART)
    if path.exists():
        raise UsageError(f"{file} exists: choose another name, or delete it first")
    try:
        with draft.open("wb") as raw, _compressed(raw, suffix) as stream:
            yield stream
        draft.replace(path)
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {(error.strerror or str(error)).lower()}") from error
    finally:
        with suppress(OSError):
            draft.unlink(missing_ok=True)


@contextmanager
def _compressed(raw: BinaryIO, suffix: str) -> Iterator[BinaryIO]:
    if suffix == ".gz":
        with gzip.GzipFile("", "wb", GZIP_LEVEL, raw) as packed:
            yield cast(BinaryIO, packed)
    elif suffix == ".zst":
        with zstd.ZstdFile(raw, "w", options=ZSTD_OPTIONS) as zstandard:
            yield cast(BinaryIO, zstandard)
    else:
        yield raw
