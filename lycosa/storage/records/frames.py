"""Compresses the text of a record into a zstd frame without its magic number, with the dictionary `names.dict`.

A `zstd.ZstdDecompressor` reads only one frame, and creating the object takes four times as long as decompression: zstd
detects the processor each time, which is slow on virtual machines. So each thread keeps one decompression context
of zstd, and uses `ctypes` to call the zstd library that Python's module has loaded. `ZstdDecompressor` is used for
damaged and large frames, and if the library cannot be called.
"""

from __future__ import annotations

import ctypes
import secrets
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import Any

if sys.version_info >= (3, 14):
    from compression import zstd

    LIBRARY = "_zstd"
else:
    from backports import zstd

    LIBRARY = "backports.zstd._zstd"

FrameError = zstd.ZstdError
MAGIC = b"\x28\xb5\x2f\xfd"
TEXT_MAX_BYTES = 1 << 26
"""A frame with a larger text is treated as damaged."""
LEVEL = 6
"""Level 19 takes five times as long, and saves only 3 % of the space."""
DICTIONARY = "names.dict"
REUSED_BYTES = 1 << 17
"""Maximum total size of the texts that one call of the library decompresses. The call returns the size of the texts, or
an error code, which is a number above this maximum."""
JOINED_MAX = 100
SEPARATOR = secrets.token_bytes(16)
"""Random, so that no name can contain it."""
BETWEEN = MAGIC + bytes([0x20, len(SEPARATOR), len(SEPARATOR) << 3 | 1, 0, 0]) + SEPARATOR + MAGIC
"""The bytes between two frames: an uncompressed frame that contains the separator, and then the magic number of the
next frame.
"""


def compress(text: bytes) -> bytes:
    """Return the frame of a text."""
    return _compressor().compress(text, zstd.ZstdCompressor.FLUSH_FRAME)[len(MAGIC) :]


def decompress(frames: Sequence[bytes]) -> list[bytes]:
    """Return the texts of these frames. Raises `ValueError`, `FrameError`."""
    context = _kept.context
    if context is None:
        return [_decompress(frame) for frame in frames]
    parts = (frames[start : start + JOINED_MAX] for start in range(0, len(frames), JOINED_MAX))
    return [text for part in parts for text in context.decompress(part)]


def _decompress(frame: bytes) -> bytes:
    decompressor = zstd.ZstdDecompressor(_dictionary())
    text = decompressor.decompress(MAGIC + frame, max_length=TEXT_MAX_BYTES)
    if not decompressor.eof:
        raise ValueError("the text is incomplete or too long")
    return text


@cache
def _dictionary() -> zstd.ZstdDict:
    return zstd.ZstdDict((files(__package__) / DICTIONARY).read_bytes())


@cache
def _compressor() -> zstd.ZstdCompressor:
    parameter = zstd.CompressionParameter
    off = (parameter.checksum_flag, parameter.dict_id_flag, parameter.content_size_flag)
    options: dict[int, int] = {parameter.compression_level: LEVEL, **dict.fromkeys(off, 0)}
    return zstd.ZstdCompressor(options=options, zstd_dict=_dictionary().as_digested_dict)


@cache
def _library() -> Any:
    """Return the functions of zstd; None if they cannot be called."""
    try:
        # PyDLL keeps the GIL: releasing and acquiring it would take longer than the decompression.
        library = ctypes.PyDLL(import_module(LIBRARY).__file__)
        size, pointer, data = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
        for name, result, arguments in (
            ("ZSTD_createDDict", pointer, (data, size)),
            ("ZSTD_createDCtx", pointer, ()),
            ("ZSTD_freeDCtx", size, (pointer,)),
            ("ZSTD_decompress_usingDDict", size, (pointer, pointer, size, data, size, pointer)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (ImportError, OSError, AttributeError, TypeError):
        return None
    return library


@cache
def _prepared_dictionary() -> int:
    content = _dictionary().dict_content
    return int(_library().ZSTD_createDDict(content, len(content)))


class _Context:
    """A decompression context of zstd (`ZSTD_DCtx`). Each thread has its own."""

    def __init__(self, library: Any) -> None:
        self._free, self._read = library.ZSTD_freeDCtx, library.ZSTD_decompress_usingDDict
        self._context, self._dictionary = library.ZSTD_createDCtx(), _prepared_dictionary()
        self._out = ctypes.create_string_buffer(REUSED_BYTES)
        self._at = ctypes.addressof(self._out)

    def decompress(self, frames: Sequence[bytes]) -> list[bytes]:
        # zstd reads adjacent frames in one call. They are separated by a frame of bytes that no text contains.
        joined = MAGIC + BETWEEN.join(frames)
        length = self._read(self._context, self._at, REUSED_BYTES, joined, len(joined), self._dictionary)
        if length <= REUSED_BYTES:
            texts = ctypes.string_at(self._at, length).split(SEPARATOR)
            if len(texts) == len(frames):
                return texts
        if len(frames) == 1:
            return [_decompress(frames[0])]
        return [text for frame in frames for text in self.decompress([frame])]

    def __del__(self) -> None:
        self._free(self._context)


class _Kept(threading.local):
    def __init__(self) -> None:
        library = _library()
        self.context = None if library is None else _Context(library)


_kept = _Kept()
