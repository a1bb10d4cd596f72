"""Remembers the samplers of each infohash (the nodes that returned it in a sample) and the peers that announced it.

Hints are in memory only.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import Contact
from lycosa.dht.crawler.core.sampler_trust import SamplerTrust

HINTS_MAX = 100_000
"""About 40 MB. An infohash without a hint costs a lookup."""
SAMPLERS_MAX = 8
"""Announces go to 8 nodes. The latest samplers are kept: they are likely online."""
PEERS_MAX = 4


class Hint(NamedTuple):
    """The samplers of an infohash, the latest first, and the peers that announced it."""

    samplers: tuple[Contact, ...] = ()
    peers: tuple[bytes, ...] = ()


class Hints:
    """The hints of infohashes that wait for a try."""

    def __init__(self) -> None:
        self.trust = SamplerTrust()
        self._hints: RecentDict[bytes, Hint] = RecentDict(HINTS_MAX)

    def __contains__(self, infohash: bytes) -> bool:
        return infohash in self._hints

    def among(self, infohashes: Iterable[bytes]) -> set[bytes]:
        return self._hints.keys() & infohashes

    def add(self, infohash: bytes, sampler: Contact | None, peer: bytes | None) -> None:
        samplers, peers = self._hints.get(infohash, Hint())
        if sampler is not None:
            samplers = (sampler, *(each for each in samplers if each.endpoint != sampler.endpoint))[:SAMPLERS_MAX]
        if peer is not None and peer not in peers:
            peers = (*peers, peer)[-PEERS_MAX:]
        self._hints[infohash] = Hint(samplers, peers)

    def take(self, infohash: bytes) -> Hint:
        return self._hints.pop(infohash, None) or Hint()

    def keep(self, infohash: bytes) -> None:
        """Collect hints from now on, because the infohash will be tried again."""
        self._hints.setdefault(infohash, Hint())
