"""Converts infohashes to records of the frontier, and back."""

from __future__ import annotations

from hashlib import blake2b

from lycosa.frontier.core.model import RECORD_VERSION, UrlRecord
from lycosa.frontier.core.states import Policy

HOST = "dht:"
"""All infohashes share one host: politeness limits apply to the addresses of nodes and peers, not to infohashes."""
FINGERPRINT_BYTES = 8
EMPTY_DIGEST = blake2b(digest_size=FINGERPRINT_BYTES)
"""Copying it is faster than making a new one."""
LEASED_MAX = 2000
"""The number of leases in the largest profile."""
LEASE_S = 365 * 86_400.0
"""Practically no expiry: the only process that uses the queue ends each lease itself, and a restart drops leases left
by a crash. With shorter leases, running tries would count as failed when the clock jumps after the machine slept."""
POLICY = Policy(delay_s=0.0, concurrency_per_host=LEASED_MAX, lease_s=LEASE_S, robots=False)
EPOCH, HOUR_S = 1_700_000_000, 3600
"""Infohashes have no depth. Their records use the field `depth` for the hour of queueing, counted from EPOCH."""
FETCHED, PRIVATE = "fetched", "private"
"""Why an infohash is done. FETCHED: the store has taken or refused the torrent. PRIVATE: the torrent is private."""
WANTED, SAMPLED, ANNOUNCED = -1, 0, 1
"""Priorities: an announced infohash has a live peer; for a wanted infohash neither a peer nor a sampler is known."""


def fingerprint(infohash: bytes) -> int:
    """Return 64 bits of a hash, to make collisions with a given infohash expensive."""
    digest = EMPTY_DIGEST.copy()
    digest.update(infohash)
    return int.from_bytes(digest.digest())


def to_record(infohash: bytes, priority: int = SAMPLED, now: float = 0.0) -> UrlRecord:
    """Return the record of an infohash of 20 bytes. `now` is in unix seconds; 0: not known."""
    hour = max(0, int(now - EPOCH) // HOUR_S)
    return UrlRecord(RECORD_VERSION, fingerprint(infohash), HOST + infohash.hex(), HOST, "", hour, priority)


def queued_after(record: UrlRecord) -> float | None:
    """Return the start of the hour (HOUR_S) in which an infohash was first queued, if it is known."""
    return EPOCH + record.depth * HOUR_S if record.depth else None


def infohash_of(record: UrlRecord) -> bytes:
    """Return the infohash of a record."""
    return bytes.fromhex(record.url.removeprefix(HOST))
