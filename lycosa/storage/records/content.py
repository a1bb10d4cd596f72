"""The stored form of a torrent's metadata: one blob, with names and paths compressed.

    version, flags (1 byte each), numbers (varints), text (a frame of zstd, see `frames`), sizes of the files (bits)

In version 2, the last number is the total size of the files. The size of the last file is not stored: it is the total
less the other sizes. Version 1 stores all sizes, but no total. Version 3, for texts with an `alphabet`, adds the
lengths of the alphabet and of the packed alphabet, and the packed alphabet.

The text contains the name, the comment, and the paths in columns (`path_columns`). If a name or path has a line end or
the control character 1, the paths are stored one by one. zstd uses a dictionary of common parts of names (`names.dict`,
written by scripts/records-dictionary). To match it more often, capitalised words, and words joined by dots or
underscores, are stored as lower-case words between spaces.
"""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import accumulate, islice
from typing import NamedTuple

from lycosa.core.errors import StorageError
from lycosa.storage.core.content_facts import FACT_NUMBERS, ContentFacts, facts_of
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.records import alphabet
from lycosa.storage.records.frames import FrameError, compress, decompress
from lycosa.storage.records.path_columns import from_columns, to_columns
from lycosa.storage.records.size_bits import pack_sizes, unpack_sizes

VERSION, WITH_ALPHABET = 2, 3
EPOCH = 1_700_000_000
NUMBERS = 1 << 64
PIECE_BITS_MAX = 63
PATHS_AT_ONCE = 16
"""Paths decoded at a time, so that a caller that needs only the first paths does not wait for all."""
FACTS_KEPT = 10_000
"""Number of cached facts: many records have the same ones."""
PRIVATE, PLAIN, CREATED, COMMENTED, TITLES, DOTS, UNDERSCORES, FACTS = (1 << bit for bit in range(8))
FRAME_HEAD_BYTES, BLOCK_HEAD_BYTES, REPEATED_BYTE = 2, 3, 1
"""The sizes of the headers of a zstd frame (without its magic number) and of a block, and the type of a block that
repeats one byte."""

SHIFT = 0x20
"""The difference between the codes of a lower-case letter and its capital."""
_CAPITALS = string.ascii_uppercase.encode()
_LETTERS = string.ascii_letters.encode()
_CAPITAL_SHIFTS = bytes(SHIFT * (byte in _CAPITALS) for byte in range(256))
_LETTER_SHIFTS = bytes(SHIFT * (byte in _LETTERS) for byte in range(256))
_SWAPS = {DOTS: bytes.maketrans(b". ", b" ."), UNDERSCORES: bytes.maketrans(b"_ ", b" _")}


class EncodedText(NamedTuple):
    """The text that zstd compresses, and the flags, lengths and alphabet that are needed to read it."""

    flags: int
    lengths: list[int]
    text: bytes
    alphabet: str = ""


def encode_content(record: TorrentRecord) -> bytes:
    """Encode the record without its infohashes."""
    flags, lengths, text, letters = encode_text(record)
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
    sizes = [file.size_bytes for file in record.files]
    total = [sum(sizes)] if sizes else []
    packed = alphabet.pack(letters)
    in_use = [len(letters), len(packed)] if letters else []
    head = [WITH_ALPHABET if letters else VERSION, flags | PRIVATE * record.private]
    return bytes(head) + _varints(numbers + lengths + total + in_use) + packed + compress(text) + pack_sizes(sizes[:-1])


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
    letters = alphabet.alphabet_of(lines)
    encoded = alphabet.encode(lines, letters) if letters else _to_bytes(lines)
    changes = _changes(encoded)
    name, *changed = _changed(encoded, changes).split(b"\n")
    lengths = [len(name), *([len(comment)] if comment else ()), len(paths)]
    return EncodedText(flags | changes, lengths, name + comment + to_columns(changed), letters)


class ContentReader:
    """Reads a blob of `encode_content`. `open` gets the decompressed text; the name, comment and paths need it.

    Paths and sizes are decoded on request. Raises `ValueError` or `IndexError` for a damaged blob.
    """

    def __init__(self, content: bytes) -> None:
        version, flags = content[0], content[1]
        if version not in {1, VERSION, WITH_ALPHABET}:
            raise ValueError(f"unknown version {version}")
        piece_bits, at = _varint(content, 2)
        if piece_bits > PIECE_BITS_MAX:
            raise ValueError(f"unknown piece length 2^{piece_bits - 1}")
        self._content, self._flags = content, flags
        if piece_bits:
            self.piece_bytes = 1 << piece_bits - 1
        else:
            self.piece_bytes, at = _varint(content, at)
        discovered, at = _varint(content, at)
        self.discovered = (discovered + EPOCH) % NUMBERS
        self.created: int | None = None
        if flags & CREATED:
            self.created, at = _varint(content, at)
        self.facts: ContentFacts | None = None
        if flags & FACTS:
            facts_at, at = at, _facts_end(content, at)
            self.facts = _facts(content[facts_at:at])
        self._name_bytes, at = _varint(content, at)
        self._comment_bytes = 0
        if flags & COMMENTED:
            self._comment_bytes, at = _varint(content, at)
        self.count, at = _varint(content, at)
        self._lengths = list[int]()
        for _ in range(self.count if flags & PLAIN else 0):
            length, at = _varint(content, at)
            self._lengths.append(length)
        self._total: int | None = None
        if version > 1 and self.count:
            self._total, at = _varint(content, at)
        self._alphabet = ""
        if version == WITH_ALPHABET:
            letters, at = _varint(content, at)
            packed_bytes, at = _varint(content, at)
            self._alphabet = alphabet.unpack(content[at : at + packed_bytes], letters)
            at += packed_bytes
        self._frame_at, self._frame_end = at, _frame_end(content, at)
        self.name, self.comment, self._columns = "", "", b""

    @property
    def frame(self) -> bytes:
        return self._content[self._frame_at : self._frame_end]

    def open(self, text: bytes) -> ContentReader:
        name, path_start = text[: self._name_bytes], self._name_bytes + self._comment_bytes
        self.name = self._to_text(name if self._flags & PLAIN else _changed(name, self._flags))
        self.comment = _to_text(text[self._name_bytes : path_start]) if self._comment_bytes else ""
        self._columns = text[path_start:]
        return self

    def paths(self, *, cased: bool = True) -> Iterator[str]:
        """Yield the paths of the files.

        Without `cased`, the letters of ASCII paths may differ in case, and spaces may be swapped with dots or
        underscores. This is faster, and the words are the same for a search.
        """
        if self._flags & PLAIN:
            yield from map(_to_text, _cut(self._columns, self._lengths))
            return
        paths = from_columns(self._columns, self.count)
        while some := list(islice(paths, PATHS_AT_ONCE)):
            joined = b"\n".join(some)
            if cased or not joined.isascii():
                joined = _changed(joined, self._flags)
            yield from self._to_text(joined).split("\n")

    def _to_text(self, data: bytes) -> str:
        return alphabet.decode(data, self._alphabet) if self._alphabet else _to_text(data)

    def sizes(self, files_max: int | None = None) -> list[int]:
        packed = self._content[self._frame_end :]
        if self._total is None or (files_max is not None and files_max < self.count):
            return unpack_sizes(packed, self.count if files_max is None else min(files_max, self.count))
        sizes = unpack_sizes(packed, self.count - 1)
        return [*sizes, self._total - sum(sizes)]

    def size_bytes(self) -> int:
        return sum(self.sizes()) if self._total is None else self._total

    def record(
        self, infohash_v1: bytes | None, infohash_v2: bytes | None, files_max: int | None = None
    ) -> TorrentRecord:
        return TorrentRecord(
            infohash_v1,
            infohash_v2,
            self.name,
            tuple(map(StoredFile, islice(self.paths(), files_max), self.sizes(files_max))),
            self.piece_bytes,
            self.discovered,
            bool(self._flags & PRIVATE),
            self.comment,
            self.created,
            self.facts,
        )


def read_content(content: bytes) -> ContentReader:
    """Return a reader of this blob."""
    reader = ContentReader(content)
    return reader.open(decompress([reader.frame])[0])


def read_contents(contents: Sequence[bytes]) -> list[ContentReader]:
    """Return a reader for each blob; faster than separate calls of `read_content`."""
    readers = [ContentReader(content) for content in contents]
    texts = decompress([reader.frame for reader in readers])
    return [reader.open(text) for reader, text in zip(readers, texts, strict=True)]


@contextmanager
def damage(of: str) -> Iterator[None]:
    """Translate the exceptions of a damaged blob into `StorageError`. `of` names the torrent."""
    try:
        yield
    except (ValueError, IndexError, FrameError) as error:
        raise StorageError(f"the record of {of} is damaged: {error}") from error


def decode_content(content: bytes, infohash_v1: bytes | None, infohash_v2: bytes | None) -> TorrentRecord:
    """Return the record. Raises `StorageError` if the blob is damaged."""
    with damage((infohash_v1 or infohash_v2 or b"").hex()):
        return read_content(content).record(infohash_v1, infohash_v2)


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
    """Apply the changes in `flags`. Applying them again restores the text."""
    if flags & TITLES:
        text = (int.from_bytes(text) ^ _first_letters(text)).to_bytes(len(text))
    for flag, swap in _SWAPS.items():
        if flags & flag:
            text = text.translate(swap)
    return text


def _first_letters(text: bytes) -> int:
    """Return a number with one byte per byte of the text: SHIFT at the first letter of each word, else 0."""
    letters = int.from_bytes(text.translate(_LETTER_SHIFTS))
    return letters & ~(letters >> 8)


def _cut(joined: bytes, lengths: list[int]) -> list[bytes]:
    ends = list(accumulate(lengths))
    return [joined[end - length : end] for end, length in zip(ends, lengths, strict=True)]


def _varints(numbers: list[int]) -> bytes:
    out = bytearray()
    for each in numbers:
        number = each
        while number > 0x7F:
            out.append(number & 0x7F | 0x80)
            number >>= 7
        out.append(number)
    return bytes(out)


def _frame_end(data: bytes, start: int) -> int:
    """Return the end of the frame that begins at `start`. Raises `IndexError`, `ValueError`."""
    if data[start]:  # `compress` leaves out the optional parts of the header
        raise ValueError("the header of the text is unknown")
    at = start + FRAME_HEAD_BYTES
    while True:
        head = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        at += BLOCK_HEAD_BYTES + (1 if head >> 1 & 3 == REPEATED_BYTE else head >> 3)
        if head & 1:
            break
    if at > len(data):
        raise IndexError("the text is incomplete")
    return at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = data[at]
    if number < 0x80:
        return number, at + 1
    number &= 0x7F
    shift = 7
    while True:
        at += 1
        byte = data[at]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + 1
        shift += 7


def _facts_end(data: bytes, at: int) -> int:
    present, at = _varint(data, at)
    while present:
        if present & 1:
            _, at = _varint(data, at)
        present >>= 1
    return at


@lru_cache(FACTS_KEPT)
def _facts(data: bytes) -> ContentFacts:
    present, at = _varint(data, 0)
    facts = [0] * FACT_NUMBERS
    for place in range(FACT_NUMBERS):
        if present >> place & 1:
            facts[place], at = _varint(data, at)
    return facts_of(facts)


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
