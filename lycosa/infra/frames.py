"""Checksummed frames in an append-only file: [length, checksum, payload].

An interrupted write leaves a torn frame at the end of the file, which readers ignore.
"""

from __future__ import annotations

from struct import Struct

from xxhash import xxh3_64_intdigest

HEAD = Struct("<IQ")


def encode_frame(payload: bytes, seed: int = 0) -> bytes:
    """Return the frame of a payload, with its xxh3 checksum."""
    return HEAD.pack(len(payload), xxh3_64_intdigest(payload, seed)) + payload


def frame_at(data: bytes, at: int, seed: int = 0) -> bytes | None:
    """Return the payload of the frame that begins at `at`; None if the frame is invalid."""
    begin = at + HEAD.size
    if begin > len(data):
        return None
    length, checksum = HEAD.unpack_from(data, at)
    if begin + length > len(data):
        return None
    payload = data[begin : begin + length]
    return payload if xxh3_64_intdigest(payload, seed) == checksum else None
