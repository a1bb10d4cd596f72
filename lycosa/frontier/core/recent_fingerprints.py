"""Fingerprints that were pushed from here, as many as fit: whoever is among them need not be sent again.

Exact, unlike a Bloom filter, which can tell only what is new: a slot holds a whole fingerprint, 8 bytes, and a later
one with the same slot takes its place.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from xxhash import xxh3_64_intdigest

from lycosa.frontier.core.model import UrlRecord

SLOTS = 1 << 17


class RecentFingerprints:
    """The last fingerprints of all segments."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = array("Q", bytes(8 * slots))
        self._mask = slots - 1

    def add(self, record: UrlRecord) -> None:
        """Remember one, unless it is never a duplicate."""
        if not record.dont_filter:
            mixed = record.fingerprint ^ _salt(record.segment)
            self._slots[mixed & self._mask] = mixed

    def among(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that are remembered."""
        salt, slots, mask = _salt(segment), self._slots, self._mask
        return {each for each in fingerprints if slots[(each ^ salt) & mask] == each ^ salt != 0}


def _salt(segment: str) -> int:
    return xxh3_64_intdigest(segment.encode()) if segment else 0
