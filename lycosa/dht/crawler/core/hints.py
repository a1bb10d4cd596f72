"""Who named an infohash: nodes to ask first for its peers, and peers that announced it. In memory alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.crawler.core.sampler_trust import SamplerTrust

HINTS_MAX = 100_000
"""Infohashes with hints, about 40 MB. Without its hint, an infohash costs a lookup."""
SAMPLERS_MAX = 8
"""As many nodes store an infohash. The latest ones are kept: they were there last."""
PEERS_MAX = 4


class Hint(NamedTuple):
    """Where to ask first: the latest samplers, the latest first, and peers that announced."""

    samplers: tuple[Contact, ...] = ()
    peers: tuple[bytes, ...] = ()


class Hints:
    """Hints of infohashes that wait for a try: those that are done have none."""

    def __init__(self) -> None:
        self.trust = SamplerTrust()
        self._hints: RecentDict[bytes, Hint] = RecentDict(HINTS_MAX)

    def __contains__(self, infohash: bytes) -> bool:
        return infohash in self._hints

    def among(self, infohashes: Iterable[bytes]) -> set[bytes]:
        """Return those that wait for a try."""
        return self._hints.keys() & infohashes

    def add(self, infohash: bytes, sampler: Contact | None, peer: bytes | None) -> None:
        """Remember who named an infohash."""
        samplers, peers = self._hints.get(infohash, Hint())
        if sampler is not None:
            samplers = (sampler, *(each for each in samplers if each.endpoint != sampler.endpoint))[:SAMPLERS_MAX]
        if peer is not None and peer not in peers:
            peers = (*peers, peer)[-PEERS_MAX:]
        self._hints[infohash] = Hint(samplers, peers)

    def take(self, infohash: bytes) -> Hint:
        """Return what is known, and forget it."""
        return self._hints.pop(infohash, None) or Hint()

    def keep(self, infohash: bytes) -> None:
        """Remember who names this infohash from now on: it will be tried again."""
        self._hints.setdefault(infohash, Hint())
