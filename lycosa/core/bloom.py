"""A Bloom filter that grows and keeps its promise: what was added is always "maybe", the rest "maybe" only so often.

Layers of fixed size (rbloom), each `GROWTH` times as large as the one before, up to `ROOM_MAX`, and with half its share
of false positives, so that all together stay below twice the first share (Almeida et al., Scalable Bloom Filters,
2007): few layers, since every one is asked, and small while there is little. What is added is a 64-bit fingerprint,
which is a hash already.

Pure: bytes in and out. Damaged bytes raise `ValueError`.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from math import log
from operator import index
from zlib import compress, decompress
from zlib import error as zlib_error

import msgspec
from rbloom import Bloom
from xxhash import xxh3_64_digest

from lycosa.core.units import format_size

FALSE_POSITIVES = 1e-2
"""Share of unknown fingerprints that the first layer takes for known; each costs one look-up in the exact store."""

GROWTH = 4
EXPECTED = 1_000_000
"""Fingerprints the first layer has room for, when nothing better is known."""

EXPECTED_MAX = 1_000_000_000
"""Fingerprints for which the first layer may have room (`--expected-urls`): 1.2 GB of memory in every open segment."""

TELLABLE_MAX = 10**15
"""Fingerprints of which it is still told what memory they would take."""

ROOM_MAX = 64_000_000
"""Fingerprints for which a layer has room, unless more were expected: a layer is saved as a whole, 100 MB then."""

LAYERS_MAX = 12
ADDED_AT_ONCE_MAX = 100_000
"""Fingerprints that are taken from an iterator at a time: a filter may be rebuilt from a hundred million."""

DIGEST = 8
SPARSE = 16
"""A layer that is filled to less than this part is compressed when it is saved."""


def memory_bytes(expected: int, rate: float = FALSE_POSITIVES) -> int:
    """Return the memory of a layer with room for so many (Bloom, 1970): 1.2 bytes each with the usual rate."""
    return round(expected * -log(rate) / log(2) ** 2 / 8)


def too_large(expected: int) -> str:
    """Return why no filter is made for so many at once, "" when one is, or when the number says enough."""
    if not EXPECTED_MAX < expected < TELLABLE_MAX:
        return ""
    takes, most = format_size(memory_bytes(expected)), format_size(memory_bytes(EXPECTED_MAX))
    return (
        f"a Bloom filter for {expected:,} URLs takes {takes} of memory in every segment: "
        f"write at most {EXPECTED_MAX:,} ({most}); it grows by itself when there are more"
    )


class Head(msgspec.Struct, array_like=True, frozen=True):
    """What describes a layer: room for so many, so many inside, its share of false positives, its bits compressed."""

    room: int
    count: int
    rate: float
    packed: bool


class Layer:
    """One filter of fixed size."""

    __slots__ = ("bits", "count", "rate", "room")

    def __init__(self, room: int, rate: float, count: int = 0, bits: Bloom | None = None) -> None:
        self.room = room
        self.rate = rate
        self.count = count
        self.bits = Bloom(room, rate, index) if bits is None else bits

    def dump(self) -> bytes:
        """Return the layer with a checksum in front."""
        sparse = self.count * SPARSE < self.room
        bits = compress(self.bits.save_bytes(), 1) if sparse else self.bits.save_bytes()
        body = msgspec.msgpack.encode((Head(self.room, self.count, self.rate, sparse), bits))
        return xxh3_64_digest(body) + body

    @classmethod
    def load(cls, data: bytes) -> Layer:
        """Return the layer of `dump`. Raises `ValueError`."""
        if xxh3_64_digest(data[DIGEST:]) != data[:DIGEST]:
            raise ValueError("a damaged layer of the filter")
        try:
            head, bits = _decode(data[DIGEST:])
            bits = decompress(bits) if head.packed else bits
        except (msgspec.MsgspecError, zlib_error) as error:
            raise ValueError(str(error)) from error
        return cls(head.room, head.rate, head.count, Bloom.load_bytes(bits, index))


class Filter:
    """The layers, the newest first: it holds most of what is known.

    `bits` are their rbloom filters, for whoever asks so often that a call would cost too much.
    """

    __slots__ = ("_rate", "bits", "layers", "newest")

    def __init__(self, expected: int = EXPECTED, rate: float | None = None, layers: Iterable[Layer] = ()) -> None:
        self._rate = FALSE_POSITIVES if rate is None else rate
        self.layers = list(layers) or [Layer(expected, self._rate)]
        self._look()

    def __contains__(self, fingerprint: int) -> bool:
        return any(fingerprint in bits for bits in self.bits)

    def __len__(self) -> int:
        return sum(layer.count for layer in self.layers)

    def update(self, fingerprints: Iterable[int]) -> None:
        """Add many."""
        rest = iter(fingerprints)
        while added := list(islice(rest, min(ADDED_AT_ONCE_MAX, max(1, self.newest.room - self.newest.count)))):
            self.bits[0].update(added)
            self._note(len(added))

    def _note(self, added: int) -> None:
        """So many were added to the newest layer; begin the next one when it is full."""
        last = self.newest
        last.count += added
        if last.count >= last.room and len(self.layers) < LAYERS_MAX:
            room = max(last.room, min(last.room * GROWTH, ROOM_MAX))
            self.layers.insert(0, Layer(room, last.rate / 2))
            self._look()

    def _look(self) -> None:
        self.newest = self.layers[0]
        self.bits = tuple(layer.bits for layer in self.layers)


_decode = msgspec.msgpack.Decoder(tuple[Head, bytes]).decode
