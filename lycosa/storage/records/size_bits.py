"""Packs the sizes of a torrent's files into bits: Exp-Golomb codes of an order that suits most of the sizes.

Sizes are nearly random, so only leading zeros can be left out: a size of n bits takes about n + 1 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

ORDER_MASK = 0x3F
REPEATS = 0x40
"""Flag in the first byte: a bit before each size says whether it equals the previous size. The parts of an archive
often have the same size."""


def pack_sizes(sizes: list[int]) -> bytes:
    """Return the sizes, each from 0 to 2^63-1, as one byte string."""
    if not sizes:
        return b""
    order = max(sorted(map(int.bit_length, sizes))[len(sizes) // 2] - 1, 0)
    repeated = sum(one == other for one, other in pairwise(sizes))
    has_repeats = repeated * order > len(sizes)
    bits = "".join(_repeats(sizes, order) if has_repeats else [_code(size, order) for size in sizes])
    length = (len(bits) + 7) // 8
    return bytes([order | REPEATS * has_repeats]) + int(bits.ljust(length * 8, "0"), 2).to_bytes(length)


def unpack_sizes(packed: bytes, count: int) -> list[int]:
    """Return `count` sizes. Raises `ValueError` or `IndexError` if there are fewer."""
    if not count:
        return []
    order, has_repeats = packed[0] & ORDER_MASK, packed[0] & REPEATS
    bits = bin(int.from_bytes(b"\x01" + packed[1:]))[3:]
    sizes: list[int] = []
    at = 0
    while len(sizes) < count:
        if has_repeats:
            at += 1
            if bits[at - 1] == "1":
                sizes.append(sizes[-1])
                continue
        first = bits.index("1", at)
        at = first + first - at + order + 1
        sizes.append(int(bits[first:at], 2) - (1 << order))
    if at > len(bits):
        raise ValueError("the sizes are incomplete")
    return sizes


def _repeats(sizes: list[int], order: int) -> Iterable[str]:
    last = -1
    for size in sizes:
        yield "1" if size == last else "0" + _code(size, order)
        last = size


def _code(size: int, order: int) -> str:
    """Return the code: size + 2^order in binary, after one zero for each bit beyond the first `order` + 1."""
    bits = f"{size + (1 << order):b}"
    return bits.zfill(2 * len(bits) - order - 1)
