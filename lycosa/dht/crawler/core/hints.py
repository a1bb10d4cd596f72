"""Who named an infohash: the node to ask first for its peers, and peers that announced it. In memory alone."""

from __future__ import annotations

from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact

HINTS_MAX = 100_000
"""Infohashes with hints, about 30 MB. Without its hint, an infohash costs a lookup."""
PEERS_MAX = 4


class Hint(NamedTuple):
    """Where to ask first."""

    sampler: Contact | None = None
    peers: tuple[bytes, ...] = ()


class Hints:
    """See the module."""

    def __init__(self) -> None:
        self._hints: RecentDict[bytes, Hint] = RecentDict(HINTS_MAX)

    def add(self, infohash: bytes, sampler: Contact | None, peer: bytes | None) -> None:
        """Remember who named an infohash."""
        hint = self._hints.get(infohash, Hint())
        peers = hint.peers
        if peer is not None and peer not in peers:
            peers = (*peers, peer)[-PEERS_MAX:]
        self._hints[infohash] = Hint(sampler or hint.sampler, peers)

    def take(self, infohash: bytes) -> Hint:
        """Return what is known, and forget it."""
        return self._hints.pop(infohash, None) or Hint()
