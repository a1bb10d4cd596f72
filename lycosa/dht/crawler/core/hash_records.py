"""An infohash as a record of the frontier, and back."""

from __future__ import annotations

from hashlib import blake2b

from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.core.states import Policy

HOST = "dht:"
"""The one host of all infohashes. A crawl is polite to nodes and peers by their addresses, not by infohash."""
FINGERPRINT_BYTES = 8
LEASED_MAX = 2000
"""Infohashes in work at once, in the largest profile."""
LEASE_S = 365 * 86_400.0
"""For ever: the one process that has the queue ends each lease itself, and after a crash they are void. The clock may
jump when a machine wakes up, and an expired lease counts as a failure of its infohash."""
POLICY = Policy(delay_s=0.0, concurrency_per_host=LEASED_MAX, lease_s=LEASE_S, robots=False)
WANTED, SAMPLED, ANNOUNCED = -1, 0, 1
"""Priorities: an announced infohash has a peer that is there now, and of a wanted one nobody is known."""


def fingerprint(infohash: bytes) -> int:
    """Return 64 bits that nobody can aim at: others choose infohashes, and may want to hide one behind another."""
    return int.from_bytes(blake2b(infohash, digest_size=FINGERPRINT_BYTES).digest())


def to_record(infohash: bytes, priority: int = SAMPLED) -> UrlRecord:
    """Return the record of an infohash of 20 bytes."""
    return UrlRecord(RECORD_VERSION, fingerprint(infohash), HOST + infohash.hex(), HOST, priority=priority)


def infohash_of(record: UrlRecord) -> bytes:
    """Return the infohash of a record."""
    return bytes.fromhex(record.url.removeprefix(HOST))
