"""Checksummed frames of a file that is appended to: [length, checksum, payload].

A kill or a full disk in the middle of a write leaves a torn frame, which does not count.
"""

from __future__ import annotations

from struct import Struct

from xxhash import xxh3_64_intdigest

HEAD = Struct("<IQ")


def encode_frame(payload: bytes, seed: int = 0) -> bytes:
    """Return a frame; its checksum is xxh3 with this seed."""
    return HEAD.pack(len(payload), xxh3_64_intdigest(payload, seed)) + payload


def frame_at(data: bytes, at: int, seed: int = 0) -> bytes | None:
    """Return the payload of the frame that begins there, None if no valid one does."""
    begin = at + HEAD.size
    if begin > len(data):
        return None
    length, checksum = HEAD.unpack_from(data, at)
    if begin + length > len(data):
        return None
    payload = data[begin : begin + length]
    return payload if xxh3_64_intdigest(payload, seed) == checksum else None
