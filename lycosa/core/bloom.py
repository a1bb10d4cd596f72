"""A Bloom filter that grows with its contents and keeps its rate of false positives.

It consists of layers of fixed size (rbloom). Each new layer has `GROWTH` times the capacity of the previous one, up to
`CAPACITY_MAX`, and half its rate of false positives. So the total rate stays below twice that of the first layer
(Almeida et al., Scalable Bloom Filters, 2007), until LAYERS_MAX layers are full. Elements are 64-bit fingerprints,
which are hashes already.
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
"""Rate of false positives of the first layer. A false positive costs one look-up in the exact store."""

GROWTH = 4
EXPECTED = 1_000_000
"""Default capacity of the first layer, in fingerprints."""

EXPECTED_MAX = 1_000_000_000
"""Maximum capacity of the first layer, in fingerprints (`--expected-urls`): 1.2 GB of memory per open segment."""

EXPLAINED_MAX = 10**15
"""`too_large` ignores larger numbers of fingerprints, which `expected_urls` refuses anyway."""

CAPACITY_MAX = 64_000_000
"""Maximum capacity of a further layer, in fingerprints, unless the first layer is larger. A layer is saved as a whole,
and a layer of this capacity takes 90 to 200 MB."""

LAYERS_MAX = 12
BATCH_MAX = 100_000
"""Maximum number of fingerprints read from an iterator at once."""

CHECKSUM_BYTES = 8
SPARSE = 16
"""A layer filled to less than 1/SPARSE is saved compressed."""


def memory_bytes(expected: int, rate: float = FALSE_POSITIVES) -> int:
    """Return the memory that a layer takes (Bloom, 1970): 1.2 bytes per fingerprint at the default rate."""
    return round(expected * -log(rate) / log(2) ** 2 / 8)


def too_large(expected: int) -> str:
    """Return why a filter cannot start with this capacity; else ""."""
    if not EXPECTED_MAX < expected < EXPLAINED_MAX:
        return ""
    takes, most = format_size(memory_bytes(expected)), format_size(memory_bytes(EXPECTED_MAX))
    return (
        f"a Bloom filter for {expected:,} URLs takes {takes} of memory in every segment: "
        f"write at most {EXPECTED_MAX:,} ({most}); the filter grows by itself for more URLs"
    )


class LayerHeader(msgspec.Struct, array_like=True, frozen=True):
    """Describes the saved bits of a layer, compressed if `packed`."""

    capacity: int
    count: int
    rate: float
    packed: bool


class Layer:
    """A filter of fixed size."""

    __slots__ = ("bits", "capacity", "count", "rate")

    def __init__(self, capacity: int, rate: float, count: int = 0, bits: Bloom | None = None) -> None:
        self.capacity = capacity
        self.rate = rate
        self.count = count
        self.bits = Bloom(capacity, rate, index) if bits is None else bits

    def dump(self) -> bytes:
        """Return the layer as bytes that begin with a checksum."""
        sparse = self.count * SPARSE < self.capacity
        bits = compress(self.bits.save_bytes(), 1) if sparse else self.bits.save_bytes()
        body = msgspec.msgpack.encode((LayerHeader(self.capacity, self.count, self.rate, sparse), bits))
        return xxh3_64_digest(body) + body

    @classmethod
    def load(cls, data: bytes) -> Layer:
        """Return the layer that `dump` wrote. Raises `ValueError`."""
        if xxh3_64_digest(data[CHECKSUM_BYTES:]) != data[:CHECKSUM_BYTES]:
            raise ValueError("a layer of the filter is damaged")
        try:
            header, bits = _decode(data[CHECKSUM_BYTES:])
            bits = decompress(bits) if header.packed else bits
        except (msgspec.MsgspecError, zlib_error) as error:
            raise ValueError(str(error)) from error
        return cls(header.capacity, header.rate, header.count, Bloom.load_bytes(bits, index))


class Filter:
    """A growing Bloom filter. The newest layer is the first; no other layer is larger.

    Hot loops use `bits`, the rbloom filters of the layers, because a method call would cost too much.
    """

    __slots__ = ("_rate", "bits", "layers", "newest")

    def __init__(self, expected: int = EXPECTED, rate: float | None = None, layers: Iterable[Layer] = ()) -> None:
        self._rate = FALSE_POSITIVES if rate is None else rate
        self.layers = list(layers) or [Layer(expected, self._rate)]
        self._refresh()

    def __contains__(self, fingerprint: int) -> bool:
        return any(fingerprint in bits for bits in self.bits)

    def __len__(self) -> int:
        return sum(layer.count for layer in self.layers)

    def update(self, fingerprints: Iterable[int]) -> None:
        rest = iter(fingerprints)
        while added := list(islice(rest, min(BATCH_MAX, max(1, self.newest.capacity - self.newest.count)))):
            self.bits[0].update(added)
            self._count(len(added))

    def _count(self, added: int) -> None:
        last = self.newest
        last.count += added
        # Beyond LAYERS_MAX the rate of false positives grows, but memory and look-up time stay bounded.
        if last.count >= last.capacity and len(self.layers) < LAYERS_MAX:
            capacity = max(last.capacity, min(last.capacity * GROWTH, CAPACITY_MAX))
            self.layers.insert(0, Layer(capacity, last.rate / 2))
            self._refresh()

    def _refresh(self) -> None:
        self.newest = self.layers[0]
        self.bits = tuple(layer.bits for layer in self.layers)


_decode = msgspec.msgpack.Decoder(tuple[LayerHeader, bytes]).decode
