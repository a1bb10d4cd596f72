"""The sizes of files, packed into bits."""

from __future__ import annotations

import random

import pytest

from lycosa.storage.records.size_bits import pack_sizes, unpack_sizes

MAX = 2**63 - 1


@pytest.mark.parametrize("sizes", [[], [0], [MAX], [0] * 9, [MAX, 0, 1, MAX, MAX], [5, 5, 5, 5, 2], [1, 2**40, 3, 4]])
def test_sizes_are_read_as_they_were_written(sizes):
    assert unpack_sizes(pack_sizes(sizes), len(sizes)) == sizes


def test_random_sizes_are_read_as_they_were_written():
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    for _ in range(500):
        some = [rng.getrandbits(rng.randrange(1, 64)) for _ in range(rng.randrange(1, 9))]
        sizes = rng.choices(some, k=rng.randrange(40))
        assert unpack_sizes(pack_sizes(sizes), len(sizes)) == sizes


def test_a_size_takes_about_as_many_bits_as_it_has():
    rng = random.Random(1)
    sizes = [rng.randrange(2**29, 3 * 2**29) for _ in range(1000)]
    assert len(pack_sizes(sizes)) * 8 < 1000 * 32.1
    assert len(pack_sizes([15_000_000] * 99 + [1234])) < 25


def test_missing_bits_are_an_error():
    packed = pack_sizes([1000, 2000, 3000])
    for end in range(len(packed)):
        with pytest.raises((ValueError, IndexError)):
            unpack_sizes(packed[:end], 3)
