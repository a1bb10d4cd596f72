"""The stored form of a torrent's metadata: one blob, with names and paths compressed.

    version, flags (1 byte each), numbers (varints), text (a frame of zstd, see `frames`), sizes of the files (bits)

The last number is the total size of the files, so a list of torrents needs no sums. The size of the last file is not
stored: it is the total less the other sizes. Version 1 stores the sizes of all files, but no total. Version 3 is
written for texts with an `alphabet`: the last two numbers are its length and that of its packed form, which follows.

The text contains the name, the comment, and the paths in columns (`path_columns`). If a name or path has a line end or
the control character 1, the paths are stored one by one. zstd uses a dictionary of common parts of names (`names.dict`,
written by scripts/records-dictionary). Capitalised words, and words joined by dots or underscores, are stored as
lower-case words between spaces, so that more of them match the dictionary. Reading changes them back.
"""

from __future__ import annotations

import string
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate, islice
from operator import length_hint
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
"""Number of paths that are decoded together. A caller that needs only the first paths does not wait for the others."""
PRIVATE, PLAIN, CREATED, COMMENTED, TITLES, DOTS, UNDERSCORES, FACTS = (1 << bit for bit in range(8))

SHIFT = 0x20
"""The difference between the codes of a small letter and its capital."""
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
    """Reads what `encode_content` wrote. Paths and sizes are decoded when they are requested.

    Raises `ValueError`, `IndexError` or `FrameError` if the blob is damaged.
    """

    def __init__(self, content: bytes) -> None:
        version, flags = content[:2]
        if version not in {1, VERSION, WITH_ALPHABET}:
            raise ValueError(f"unknown version {version}")
        rest = iter(content)
        next(rest), next(rest)
        numbers = _read_varints(rest)
        if (piece_bits := next(numbers)) > PIECE_BITS_MAX:
            raise ValueError(f"unknown piece length 2^{piece_bits - 1}")
        self._flags = flags
        self.piece_bytes = 1 << piece_bits - 1 if piece_bits else next(numbers)
        self.discovered = (next(numbers) + EPOCH) % NUMBERS
        self.created = next(numbers) if flags & CREATED else None
        self.facts = _read_facts(numbers) if flags & FACTS else None
        name_bytes, comment_bytes = next(numbers), next(numbers) if flags & COMMENTED else 0
        self.count = next(numbers)
        self._lengths = list(islice(numbers, self.count)) if flags & PLAIN else []
        self._total = next(numbers) if version > 1 and self.count else None
        letters, packed_bytes = (next(numbers), next(numbers)) if version == WITH_ALPHABET else (0, 0)
        at = len(content) - length_hint(rest)
        self._alphabet = alphabet.unpack(content[at : at + packed_bytes], letters)
        text, self._packed_sizes = decompress(content[at + packed_bytes :])
        name, self._columns = text[:name_bytes], text[name_bytes + comment_bytes :]
        self.name = self._to_text(name if flags & PLAIN else _changed(name, flags))
        self.comment = _to_text(text[name_bytes:][:comment_bytes]) if comment_bytes else ""

    def paths(self) -> Iterator[str]:
        """Return the paths of the files."""
        if self._flags & PLAIN:
            yield from map(_to_text, _cut(self._columns, self._lengths))
            return
        paths = from_columns(self._columns, self.count)
        while some := list(islice(paths, PATHS_AT_ONCE)):
            yield from self._to_text(_changed(b"\n".join(some), self._flags)).split("\n")

    def _to_text(self, data: bytes) -> str:
        return alphabet.decode(data, self._alphabet) if self._alphabet else _to_text(data)

    def sizes(self, files_max: int | None = None) -> list[int]:
        """Return the sizes of all files, or of the first `files_max` files."""
        if self._total is None or (files_max is not None and files_max < self.count):
            return unpack_sizes(self._packed_sizes, self.count if files_max is None else min(files_max, self.count))
        sizes = unpack_sizes(self._packed_sizes, self.count - 1)
        return [*sizes, self._total - sum(sizes)]

    def size_bytes(self) -> int:
        """Return the size of all files."""
        return sum(self.sizes()) if self._total is None else self._total

    def record(
        self, infohash_v1: bytes | None, infohash_v2: bytes | None, files_max: int | None = None
    ) -> TorrentRecord:
        """Return the record, with `files_max` files at most."""
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


@contextmanager
def damage(of: str) -> Iterator[None]:
    """Translate the exceptions that a damaged blob causes into `StorageError`. `of` names the torrent."""
    try:
        yield
    except (ValueError, IndexError, FrameError) as error:
        raise StorageError(f"the record of {of} is damaged: {error}") from error


def decode_content(content: bytes, infohash_v1: bytes | None, infohash_v2: bytes | None) -> TorrentRecord:
    """Return the record. Raises `StorageError` if the blob is damaged."""
    with damage((infohash_v1 or infohash_v2 or b"").hex()):
        return ContentReader(content).record(infohash_v1, infohash_v2)


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
    """Return a number with one byte per byte of the text: SHIFT at the first letter of each word, else 0. Faster than a
    loop."""
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


def _read_varints(data: Iterator[int]) -> Iterator[int]:
    """Yield the numbers. Each is read from `data` only when it is requested."""
    number = shift = 0
    for byte in data:
        if byte < 0x80:
            yield number | byte << shift
            number = shift = 0
        else:
            number |= (byte & 0x7F) << shift
            shift += 7
    raise IndexError("a number is incomplete")


def _read_facts(numbers: Iterator[int]) -> ContentFacts:
    """Read a bit mask of the facts that are not 0, then these facts."""
    present = next(numbers)
    return facts_of([next(numbers) if present >> place & 1 else 0 for place in range(FACT_NUMBERS)])


def _to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
