"""Node ids, infohashes and targets: 20 bytes each. The distance between two of them is their XOR (BEP 5)."""

from __future__ import annotations

ID_BYTES = 20
ID_BITS = 8 * ID_BYTES


def distance(one: bytes, other: bytes) -> int:
    """Return the XOR distance between two ids; smaller is closer."""
    return int.from_bytes(one) ^ int.from_bytes(other)
