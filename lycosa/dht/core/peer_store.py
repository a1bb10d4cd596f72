"""Stores the peers that were announced to us, by infohash, for one address family (BEP 32). In memory only.

There is one entry per infohash and IP address (BEP 33), which a new announce renews. If the store is full, the oldest
entry is dropped.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

from lycosa.dht.core.endpoints import site_of
from lycosa.dht.core.ids import ID_BYTES
from lycosa.dht.core.scrape_filter import ScrapeFilter

EXPIRY_S = 2700.0
"""Seconds from the last announce of a peer until it is forgotten, as in libtorrent. Clients announce every 15 to 30
minutes."""
PEERS_MAX = 100_000
"""About 40 MB. In a network of eight million nodes, each should store a few thousand peers."""
INFOHASHES_MAX = 20_000
"""About 20 MB (libtorrent: 2,000 infohashes)."""
SWARM_MAX = 6000
"""Maximum number of peers per infohash: more would overfill the filters of BEP 33. Once it is reached, no tokens are
issued for the infohash."""
HOST_ANNOUNCES_MAX = 500
"""Maximum number of entries of one host (an IPv4 address or an IPv6 /64). An honest host needs few: even if it seeds a
million torrents, this node is among the eight closest nodes of only one or two of them."""

FILTERS_KEPT_S = 10.0
FILTERS_KEPT_FROM = 100
"""Filters of this many peers or more are cached for FILTERS_KEPT_S, although each announce changes them, because
computing the filters of 6,000 peers takes 15 ms."""
SAMPLES_MAX = 20
"""Maximum number of infohashes in a sample, as in libtorrent. With two lists of nodes, they fit into 1,024 bytes."""


class StoredPeer(NamedTuple):
    """A peer according to its last announce."""

    endpoint: bytes
    seed: bool


class Swarm:
    """The peers of an infohash by IP address, and values computed from them."""

    __slots__ = ("endpoints", "filters", "filters_until", "leechers", "peers")

    def __init__(self) -> None:
        self.peers: dict[bytes, StoredPeer] = {}
        self.endpoints: list[bytes] | None = None
        self.leechers: list[bytes] | None = None
        self.filters: tuple[bytes, bytes] | None = None
        self.filters_until = -math.inf
        """Until this time `filters` are used, even if they are outdated."""

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
    """The announced peers of one address family."""

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
        """Return whether there was room for the peer."""
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
        swarm.peers[address] = StoredPeer(endpoint, seed)
        self._order[infohash + address] = now
        return True

    def accepts(self, infohash: bytes) -> bool:
        """Return whether there is room for another peer. If not, no token is issued for the infohash (BEP 33)."""
        swarm = self._swarms.get(infohash)
        return swarm is None or len(swarm.peers) < self._swarm_max

    def peers(
        self, infohash: bytes, count: int, chance: int, now: float, *, without_seeds: bool = False
    ) -> list[bytes]:
        """Return up to `count` peers, selected by the integer `chance`.

        `without_seeds`: leave out the seeds, unless there are no other peers.
        """
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
        """Return the filters of seeds and of other peers (BEP 33)."""
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
        """Return up to SAMPLES_MAX infohashes, selected by `chance`, the same ones for `interval_s` (BEP 51).

        An empty sample is not cached: a new node would return nothing for the whole first interval.
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
        while self._order:
            key = next(iter(self._order))
            if now < self._order[key] + self._expiry_s:
                return
            self._drop(key)

    def validate(self) -> None:
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
    """Return a step that visits all `count` places before it repeats one (coprime to `count`)."""
    step = chance // max(count, 1) % max(count, 1) or 1
    while math.gcd(step, count) > 1:
        step += 1
    return step
