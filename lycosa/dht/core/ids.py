"""Node ids, infohashes and targets: 20 bytes each. The distance between two of them is their XOR (BEP 5)."""

from __future__ import annotations

ID_BYTES = 20
ID_BITS = 8 * ID_BYTES


def distance(one: bytes, other: bytes) -> int:
    """Return the XOR distance between two ids; smaller is closer."""
    return int.from_bytes(one) ^ int.from_bytes(other)


def common_prefix_bits(one: bytes, other: bytes) -> int:
    """Return how many leading bits two ids share: 0 to 160."""
    return ID_BITS - distance(one, other).bit_length()


def id_with_prefix(prefix: bytes, bits: int, rest: bytes) -> bytes:
    """Return an id: the first `bits` bits from `prefix`, the remaining ones from `rest` (20 random bytes)."""
    mask = (1 << (ID_BITS - bits)) - 1
    return (int.from_bytes(prefix) & ~mask | int.from_bytes(rest) & mask).to_bytes(ID_BYTES)
