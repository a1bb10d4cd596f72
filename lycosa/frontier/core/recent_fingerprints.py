"""A bounded set of recently pushed fingerprints, which need not be sent to the server again.

A hash table with one fingerprint (8 bytes) per slot; a newer one replaces the older. It gives no false positives.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from xxhash import xxh3_64_intdigest

from lycosa.frontier.core.model import UrlRecord

SLOTS = 1 << 17


class RecentFingerprints:
    """The fingerprints of all segments. `slots` must be a power of two."""

    def __init__(self, slots: int = SLOTS) -> None:
        self._slots = array("Q", bytes(8 * slots))
        self._mask = slots - 1

    def add(self, record: UrlRecord) -> None:
        if not record.dont_filter:
            mixed = record.fingerprint ^ _salt(record.segment)
            self._slots[mixed & self._mask] = mixed

    def contained(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        salt, slots, mask = _salt(segment), self._slots, self._mask
        # Empty slots hold 0, so 0 never counts as contained.
        return {each for each in fingerprints if slots[(each ^ salt) & mask] == each ^ salt != 0}


def _salt(segment: str) -> int:
    return xxh3_64_intdigest(segment.encode()) if segment else 0
