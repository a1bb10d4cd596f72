"""The stored form of a torrent's metadata: one blob, with names and paths compressed.

    version, flags (1 byte each), numbers (varints), text (zstd without its magic number), sizes of the files (bits)

The text contains the name, the comment, and the paths in columns (`path_columns`). If a name or path has a line end or
the control character 1, the paths are stored one by one. zstd uses a dictionary of common parts of names (`names.dict`,
written by scripts/records-dictionary). Capitalised words, and words joined by dots or underscores, are stored as
lower-case words between spaces and changed back when read: so more of them match the dictionary.
"""

from __future__ import annotations

import string
import sys
from functools import cache
from importlib.resources import files
from itertools import accumulate
from typing import NamedTuple

from lycosa.core.errors import StorageError
from lycosa.storage.core.content_facts import FACT_NUMBERS, ContentFacts, facts_of
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.records.path_columns import from_columns, to_columns
from lycosa.storage.records.size_bits import pack_sizes, unpack_sizes

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

VERSION = 1
MAGIC = b"\x28\xb5\x2f\xfd"
CONTENT_MAX_BYTES = 1 << 26
"""Maximum size of the decompressed text in bytes. A blob with a larger text is treated as damaged."""
EPOCH = 1_700_000_000
NUMBERS = 1 << 64
LEVEL = 19
DICTIONARY = "names.dict"
PRIVATE, PLAIN, CREATED, COMMENTED, TITLES, DOTS, UNDERSCORES, FACTS = (1 << bit for bit in range(8))

SHIFT = 0x20
"""The difference between a small letter and a capital."""
_CAPITALS = string.ascii_uppercase.encode()
_LETTERS = string.ascii_letters.encode()
_CAPITAL_SHIFTS = bytes(SHIFT * (byte in _CAPITALS) for byte in range(256))
_LETTER_SHIFTS = bytes(SHIFT * (byte in _LETTERS) for byte in range(256))
_SWAPS = {DOTS: bytes.maketrans(b". ", b" ."), UNDERSCORES: bytes.maketrans(b"_ ", b" _")}


class EncodedText(NamedTuple):
    """The text that zstd compresses, with the flags and lengths that are needed to read it."""

    flags: int
    lengths: list[int]
    text: bytes


def encode_content(record: TorrentRecord) -> bytes:
    """Encode the record without its infohashes."""
    flags, lengths, text = encode_text(record)
    power_of_two = record.piece_bytes.bit_count() == 1
    numbers = [record.piece_bytes.bit_length()] if power_of_two else [0, record.piece_bytes]
    numbers.append((record.discovered - EPOCH) % NUMBERS)
    if record.created is not None:
        flags |= CREATED
        numbers.append(record.created)
    if record.content is not None:
        flags |= FACTS
        facts = record.content.to_numbers()
        numbers += [sum(bool(each) << place for place, each in enumerate(facts)), *filter(None, facts)]
    packed = _compressor().compress(text, zstd.ZstdCompressor.FLUSH_FRAME)[len(MAGIC) :]
    sizes = pack_sizes([file.size_bytes for file in record.files])
    return bytes([VERSION, flags | PRIVATE * record.private]) + _varints(numbers + lengths) + packed + sizes


def encode_text(record: TorrentRecord) -> EncodedText:
    """Encode the name, the comment and the paths."""
    comment, paths = _to_bytes(record.comment), [file.path for file in record.files]
    flags = COMMENTED * bool(comment)
    lines = "\n".join([record.name, *paths])
    if "\1" in lines or lines.count("\n") != len(paths):
        parts = [_to_bytes(record.name), comment, *map(_to_bytes, paths)]
        name_bytes, comment_bytes, *path_bytes = map(len, parts)
        lengths = [name_bytes, *([comment_bytes] if comment else ()), len(paths), *path_bytes]
        return EncodedText(flags | PLAIN, lengths, b"".join(parts))
    encoded = _to_bytes(lines)
    changes = _changes(encoded)
    name, *changed = _changed(encoded, changes).split(b"\n")
    lengths = [len(name), *([len(comment)] if comment else ()), len(paths)]
    return EncodedText(flags | changes, lengths, name + comment + to_columns(changed))


def decode_content(content: bytes, infohash_v1: bytes | None, infohash_v2: bytes | None) -> TorrentRecord:
    """Decode a record. Raises `StorageError` if the blob is damaged."""
    try:
        return _decode(content, infohash_v1, infohash_v2)
    except (ValueError, IndexError, zstd.ZstdError) as error:
        shown = (infohash_v1 or infohash_v2 or b"").hex()
        raise StorageError(f"the record of {shown} is damaged: {error}") from error


def _decode(content: bytes, infohash_v1: bytes | None, infohash_v2: bytes | None) -> TorrentRecord:
    version, flags = content[:2]
    if version != VERSION:
        raise ValueError(f"unknown version {version}")
    numbers = _Varints(content, 2)
    piece_bits = numbers.next()
    piece_bytes = 1 << piece_bits - 1 if piece_bits else numbers.next()
    discovered = (numbers.next() + EPOCH) % NUMBERS
    created = numbers.next() if flags & CREATED else None
    facts = numbers.facts() if flags & FACTS else None
    name_bytes, comment_bytes, count = numbers.next(), numbers.next() if flags & COMMENTED else 0, numbers.next()
    lengths = [numbers.next() for _ in range(count)] if flags & PLAIN else []
    text, sizes = _decompress(MAGIC + content[numbers.at :])
    name, comment, rest = text[:name_bytes], text[name_bytes:][:comment_bytes], text[name_bytes + comment_bytes :]
    if flags & PLAIN:
        lines = list(map(_to_text, (name, *_cut(rest, lengths))))
    else:
        changed = _changed(b"\n".join([name, *from_columns(rest, count)]), flags)
        lines = _to_text(changed).split("\n")
    return TorrentRecord(
        infohash_v1,
        infohash_v2,
        lines[0],
        tuple(map(StoredFile, lines[1:], unpack_sizes(sizes, count))),
        piece_bytes,
        discovered,
        bool(flags & PRIVATE),
        _to_text(comment),
        created,
        facts,
    )


def _changes(text: bytes) -> int:
    """Return the flags of the changes that turn the text into lower-case words between spaces."""
    spaces, dots, underscores = text.count(b" "), text.count(b"."), text.count(b"_")
    first = _first_letters(text)
    capitals = first & int.from_bytes(text.translate(_CAPITAL_SHIFTS))
    titles = TITLES * (capitals.bit_count() * 2 > first.bit_count())
    if max(dots, underscores) > spaces:
        return titles | (DOTS if dots >= underscores else UNDERSCORES)
    return titles


def _changed(text: bytes, flags: int) -> bytes:
    """Apply these changes. Applying them again restores the text."""
    if flags & TITLES:
        text = (int.from_bytes(text) ^ _first_letters(text)).to_bytes(len(text))
    for flag, swap in _SWAPS.items():
        if flags & flag:
            text = text.translate(swap)
    return text


def _first_letters(text: bytes) -> int:
    """Return a number whose bytes are SHIFT at the first letter of each word, else 0. Faster than a loop."""
    letters = int.from_bytes(text.translate(_LETTER_SHIFTS))
    return letters & ~(letters >> 8)


def _cut(joined: bytes, lengths: list[int]) -> list[bytes]:
    ends = list(accumulate(lengths))
    return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]


@cache
def _dictionary() -> zstd.ZstdDict:
    return zstd.ZstdDict((files(__package__) / DICTIONARY).read_bytes())


@cache
def _compressor() -> zstd.ZstdCompressor:
    parameter = zstd.CompressionParameter
    off = (parameter.checksum_flag, parameter.dict_id_flag, parameter.content_size_flag)
    options: dict[int, int] = {parameter.compression_level: LEVEL, **dict.fromkeys(off, 0)}
    return zstd.ZstdCompressor(options=options, zstd_dict=_dictionary().as_digested_dict)


def _decompress(frame: bytes) -> tuple[bytes, bytes]:
    """Return the text, and the data after it."""
    decompressor = zstd.ZstdDecompressor(_dictionary())
    text = decompressor.decompress(frame, max_length=CONTENT_MAX_BYTES)
    if not decompressor.eof:
        raise ValueError("the text is incomplete or too long")
    return text, decompressor.unused_data


def _varints(numbers: list[int]) -> bytes:
    out = bytearray()
    for each in numbers:
        number = each
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


class _Varints:
    """Reads one number after another."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self.at = data, at

    def next(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self.at]
            number |= (byte & 0x7F) << shift
            self.at, shift = self.at + 1, shift + 7
            if byte < 0x80:
                return number

    def facts(self) -> ContentFacts:
        """Read a bit mask of the facts that are not 0, then these facts."""
        present = self.next()
        return facts_of([self.next() if present >> place & 1 else 0 for place in range(FACT_NUMBERS)])


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
