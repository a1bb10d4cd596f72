"""Peers announced to us, by infohash, for one address family (BEP 32 keeps the families apart). In memory only.

One entry per infohash and IP (BEP 33); a new announce replaces its port and seed flag and renews it. Everything is
bounded: peers per infohash, entries per announcing host (an IPv4 address or an IPv6 /64), infohashes, peers. If the
store is full, the oldest announce is dropped.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

from lycosa.dht.core.endpoints import site_of
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.scrape_filter import ScrapeFilter

EXPIRY_S = 2700.0
"""Announces are repeated every 15 to 30 minutes; libtorrent forgets a peer after 45 minutes, too."""
PEERS_MAX = 100_000
"""Peers in all, about 40 MB. With eight million nodes, a node is one of the eight closest for a few thousand."""
INFOHASHES_MAX = 20_000
"""Infohashes, about 20 MB (libtorrent: 2,000)."""
SWARM_MAX = 6000
"""Peers per infohash, where the filters of BEP 33 are full: from here on askers get no token."""
HOST_ANNOUNCES_MAX = 500
"""Entries of one host, which has all addresses of its IPv6 /64. A seeder of a million torrents has us among the closest
eight of one or two."""

FILTERS_KEPT_S = 10.0
FILTERS_KEPT_FROM = 100
"""The filters of an infohash with so many peers may be 10 seconds old: those of 6,000 take 15 ms to compute, and each
announce changes them."""
SAMPLES_MAX = 20
"""Infohashes in a sample: what fits in a datagram of 1,024 bytes beside two lists of nodes (libtorrent: 20)."""


class StoredPeer(NamedTuple):
    """A peer as its last announce described it."""

    endpoint: bytes
    seed: bool
    announced_at: float


class Swarm:
    """The peers of an infohash, by IP address, and what was computed from them since the last change."""

    __slots__ = ("endpoints", "filters", "filters_until", "leechers", "peers")

    def __init__(self) -> None:
        self.peers: dict[bytes, StoredPeer] = {}
        self.endpoints: list[bytes] | None = None
        self.leechers: list[bytes] | None = None
        self.filters: tuple[bytes, bytes] | None = None
        self.filters_until = -math.inf
        """While they may be out of date."""

    def changed(self) -> None:
        self.endpoints = self.leechers = None
        if len(self.peers) < FILTERS_KEPT_FROM:
            self.filters = None


class InfohashSample(NamedTuple):
    """The answer to sample_infohashes (BEP 51)."""

    samples: bytes
    infohashes: int
    interval_s: int


class PeerStore:
    """See the module."""

    def __init__(
        self,
        *,
        peers_max: int = PEERS_MAX,
        infohashes_max: int = INFOHASHES_MAX,
        swarm_max: int = SWARM_MAX,
        host_announces_max: int = HOST_ANNOUNCES_MAX,
        expiry_s: float = EXPIRY_S,
    ) -> None:
        self._peers_max = peers_max
        self._infohashes_max = infohashes_max
        self._swarm_max = swarm_max
        self._host_announces_max = host_announces_max
        self._expiry_s = expiry_s
        self._swarms: dict[bytes, Swarm] = {}
        self._order: OrderedDict[bytes, float] = OrderedDict()  # infohash + IP, the oldest announce first
        self._announces_of: dict[bytes, int] = {}
        self._sample = InfohashSample(b"", 0, 0)
        self._sample_until = -1.0

    def __len__(self) -> int:
        return len(self._order)

    def infohash_count(self) -> int:
        return len(self._swarms)

    def announce(self, infohash: bytes, endpoint: bytes, now: float, *, seed: bool) -> bool:
        """Store a peer. Returns whether there was room for it."""
        self.expire(now)
        address = endpoint[:-2]
        swarm = self._swarms.get(infohash)
        if swarm is None or address not in swarm.peers:
            host = site_of(endpoint)
            if self._announces_of.get(host, 0) >= self._host_announces_max:
                return False
            if swarm is not None and len(swarm.peers) >= self._swarm_max:
                return False
            self._make_room(new_infohash=swarm is None)
            swarm = self._swarms.setdefault(infohash, Swarm())
            self._announces_of[host] = self._announces_of.get(host, 0) + 1
        else:
            del self._order[infohash + address]
        known = swarm.peers.get(address)
        if known is None or known.endpoint != endpoint or known.seed != seed:
            swarm.changed()
        swarm.peers[address] = StoredPeer(endpoint, seed, now)
        self._order[infohash + address] = now
        return True

    def accepts(self, infohash: bytes) -> bool:
        """Whether another peer of this infohash would be stored (BEP 33: else its askers get no token)."""
        swarm = self._swarms.get(infohash)
        return swarm is None or len(swarm.peers) < self._swarm_max

    def peers(
        self, infohash: bytes, count: int, chance: int, now: float, *, without_seeds: bool = False
    ) -> list[bytes]:
        """Return up to `count` endpoints. `chance`, any random integer, decides which, if there are more."""
        self.expire(now)
        swarm = self._swarms.get(infohash)
        if swarm is None:
            return []
        if swarm.endpoints is None or swarm.leechers is None:
            swarm.endpoints = [peer.endpoint for peer in swarm.peers.values()]
            swarm.leechers = [peer.endpoint for peer in swarm.peers.values() if not peer.seed]
        found = swarm.leechers if without_seeds and swarm.leechers else swarm.endpoints
        if len(found) <= count:
            return found
        begin = chance % len(found)
        return (found[begin:] + found[:begin])[:count] if begin + count > len(found) else found[begin : begin + count]

    def filters(self, infohash: bytes, now: float) -> tuple[bytes, bytes] | None:
        """Return the filters of seeds and of other peers (BEP 33), None without peers."""
        self.expire(now)
        swarm = self._swarms.get(infohash)
        if swarm is None:
            return None
        if swarm.filters is None or now >= swarm.filters_until:
            seeds, leechers = ScrapeFilter(), ScrapeFilter()
            for address, peer in swarm.peers.items():
                (seeds if peer.seed else leechers).insert(address)
            swarm.filters = bytes(seeds), bytes(leechers)
            swarm.filters_until = now + FILTERS_KEPT_S
        return swarm.filters

    def sample(self, interval_s: int, chance: int, now: float) -> InfohashSample:
        """Return up to SAMPLES_MAX infohashes, the same ones for `interval_s` (BEP 51). `chance` decides which.

        An empty sample is not kept: a node that was just started would have nothing to show for the first interval.
        """
        self.expire(now)
        if now >= self._sample_until or not self._sample.samples:
            infohashes = list(self._swarms)
            count = len(infohashes)
            stride = _stride(count, chance)
            picked = [infohashes[(chance + n * stride) % count] for n in range(min(SAMPLES_MAX, count))]
            self._sample = InfohashSample(b"".join(picked), len(infohashes), interval_s)
            self._sample_until = now + interval_s
        return self._sample._replace(infohashes=len(self._swarms))

    def expire(self, now: float) -> None:
        """Drop the peers whose last announce is too old."""
        while self._order:
            key = next(iter(self._order))
            if now < self._order[key] + self._expiry_s:
                return
            self._drop(key)

    def validate(self) -> None:
        """Check that all indexes agree and all bounds hold."""
        keys = {infohash + address for infohash, swarm in self._swarms.items() for address in swarm.peers}
        assert keys == set(self._order), "peers and their order differ"
        counted: dict[bytes, int] = {}
        for swarm in self._swarms.values():
            for peer in swarm.peers.values():
                host = site_of(peer.endpoint)
                counted[host] = counted.get(host, 0) + 1
        assert counted == self._announces_of, "announces per host differ"
        assert all(count <= self._host_announces_max for count in counted.values()), "too many announces of a host"
        assert all(swarm.peers for swarm in self._swarms.values()), "an infohash without peers"
        assert len(keys) <= self._peers_max, "too many peers"
        assert len(self._swarms) <= self._infohashes_max, "too many infohashes"
        assert list(self._order.values()) == sorted(self._order.values()), "peers are not in the order of announces"

    def _make_room(self, *, new_infohash: bool) -> None:
        while len(self._order) >= self._peers_max or (new_infohash and len(self._swarms) >= self._infohashes_max):
            self._drop(next(iter(self._order)))

    def _drop(self, key: bytes) -> None:
        infohash, address = key[:ID_BYTES], key[ID_BYTES:]
        del self._order[key]
        swarm = self._swarms[infohash]
        host = site_of(swarm.peers.pop(address).endpoint)
        swarm.changed()
        if not swarm.peers:
            del self._swarms[infohash]
        self._announces_of[host] -= 1
        if not self._announces_of[host]:
            del self._announces_of[host]


def _stride(count: int, chance: int) -> int:
    """Return a step that visits all of `count` places before one comes again."""
    step = chance // max(count, 1) % max(count, 1) or 1
    while math.gcd(step, count) > 1:
        step += 1
    return step
