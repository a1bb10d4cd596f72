"""The stored form of a torrent's metadata: one blob, with names and paths compressed.

    version (1 byte), length of the numbers (varint), numbers (varints), text (zstd without its magic number)

The numbers are those of the record, and the sizes of its files. The text has the name, the comment and the paths,
column by column: each path is the beginning of the one before it, a middle, and the end of the one before it, and a
number that is one more than that at the same place of the path before is written as NEXT. So a hundred episodes cost
little more than their titles. Paths with control characters are stored one by one.
"""

from __future__ import annotations

import re
import sys
from itertools import accumulate, zip_longest

from lycosa.core.errors import StorageError
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = 1
MAGIC = b"\x28\xb5\x2f\xfd"
NEXT = b"\x01"
LINE = b"\n"
SHARED_MAX = 255
"""Maximum length of a shared beginning or end: one byte holds it."""
CONTENT_MAX_BYTES = 1 << 26
"""Maximum size of the text: a blob that claims more is damaged."""

PRIVATE, PLAIN, CREATED = 1, 2, 4

_NUMBERS = re.compile(rb"[0-9]{1,9}")
_SLOTS = re.compile(rb"[0-9]{1,9}|\x01")
_CONTROL = re.compile(rb"[\x01\n]")
_OPTIONS: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 19,
    zstd.CompressionParameter.checksum_flag: 0,
    zstd.CompressionParameter.dict_id_flag: 0,
}


def encode_content(record: TorrentRecord) -> bytes:
    """Return everything of the record but its infohashes."""
    paths = [_bytes(file.path) for file in record.files]
    plain = any(_CONTROL.search(path) for path in paths)
    flags = PRIVATE * record.private | PLAIN * plain | CREATED * (record.created is not None)
    name, comment = _bytes(record.name), _bytes(record.comment)
    sizes = [file.size_bytes for file in record.files]
    lengths = [len(name), len(comment), len(paths)]
    numbers = [flags, record.piece_bytes, record.discovered, record.created or 0, *lengths, *sizes]
    if plain:
        numbers += map(len, paths)
    columns = b"".join(paths) if plain else _columns(paths)
    text = zstd.compress(name + comment + columns, options=_OPTIONS)
    packed = _varints(numbers)
    return bytes([VERSION]) + _varints([len(packed)]) + packed + text[len(MAGIC) :]


def decode_content(content: bytes, infohash_v1: bytes | None, infohash_v2: bytes | None) -> TorrentRecord:
    """Return the record. Raises `StorageError` if the blob is damaged."""
    try:
        return _decode(content, infohash_v1, infohash_v2)
    except (ValueError, IndexError, zstd.ZstdError) as error:
        shown = (infohash_v1 or infohash_v2 or b"").hex()
        raise StorageError(f"the record of {shown} is damaged: {error}") from error


def _decode(content: bytes, infohash_v1: bytes | None, infohash_v2: bytes | None) -> TorrentRecord:
    if content[:1] != bytes([VERSION]):
        raise ValueError(f"unknown version {content[:1].hex()}")
    length, at = _read_varint(content, 1)
    numbers = _read_varints(content, at, at + length)
    flags, piece_bytes, discovered, created, name_bytes, comment_bytes, count, *per_file = numbers
    sizes, lengths = per_file[:count], per_file[count:]
    text = _decompress(MAGIC + content[at + length :])
    name, comment, rest = text[:name_bytes], text[name_bytes:][:comment_bytes], text[name_bytes + comment_bytes :]
    paths = _cut(rest, lengths) if flags & PLAIN else _paths(rest, count)
    return TorrentRecord(
        infohash_v1,
        infohash_v2,
        _text(name),
        tuple(StoredFile(_text(path), size) for path, size in zip(paths, sizes, strict=True)),
        piece_bytes,
        discovered,
        bool(flags & PRIVATE),
        _text(comment),
        created if flags & CREATED else None,
    )


def _cut(joined: bytes, lengths: list[int]) -> list[bytes]:
    ends = list(accumulate(lengths))
    return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _columns(paths: list[bytes]) -> bytes:
    """Return the lengths of the shared beginnings, those of the shared ends, and the middles."""
    starts, ends, middles = bytearray(), bytearray(), []
    last_template, last_numbers = b"", list[bytes]()
    for path in paths:
        numbers = _NUMBERS.findall(path)
        template = _template(path, last_numbers)
        start = _shared(template, last_template)
        end = _shared(template[start:][::-1], last_template[start:][::-1])
        starts.append(start)
        ends.append(end)
        middles.append(template[start : len(template) - end])
        last_template, last_numbers = template, numbers
    return bytes(starts) + bytes(ends) + LINE.join(middles)


def _paths(columns: bytes, count: int) -> list[bytes]:
    starts, ends, middles = columns[:count], columns[count : 2 * count], columns[2 * count :].split(LINE)
    paths, template, numbers = [], b"", list[bytes]()
    for start, end, middle in zip(starts, ends, middles if count else [], strict=True):
        template = template[:start] + middle + template[len(template) - end :]
        following = iter(numbers)
        path = _SLOTS.sub(lambda slot, last=following: _filled(slot[0], next(last, b"")), template)  # type: ignore[misc]
        numbers = _NUMBERS.findall(path)
        paths.append(path)
    return paths


def _template(path: bytes, last: list[bytes]) -> bytes:
    """Return the path with NEXT for each number that is one more than the number at the same place in the last path."""
    before = iter(last)
    return _NUMBERS.sub(lambda number: NEXT if number[0] == _following(next(before, b"")) else number[0], path)


def _filled(slot: bytes, last: bytes) -> bytes:
    return _following(last) if slot == NEXT else slot


def _following(number: bytes) -> bytes:
    """Return the next number, at least as wide; nothing if there is none that fits a slot."""
    following = b"%0*d" % (len(number), int(number) + 1) if number else b""
    return following if len(following) <= 9 else b""


def _shared(one: bytes, other: bytes) -> int:
    count = 0
    for a, b in zip_longest(one[:SHARED_MAX], other[:SHARED_MAX]):
        if a != b or a is None:
            break
        count += 1
    return count


def _decompress(frame: bytes) -> bytes:
    decompressor = zstd.ZstdDecompressor()
    text = decompressor.decompress(frame, max_length=CONTENT_MAX_BYTES)
    if not decompressor.eof:
        raise ValueError("the text is incomplete or too long")
    return text


def _varints(numbers: list[int]) -> bytes:
    out = bytearray()
    for each in numbers:
        number = each
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _read_varints(data: bytes, at: int, end: int) -> list[int]:
    numbers = []
    while at < end:
        number, at = _read_varint(data, at)
        numbers.append(number)
    return numbers


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
