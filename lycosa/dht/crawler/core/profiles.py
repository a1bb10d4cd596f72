"""How much of a line and its router a crawl may use, and how many torrents a day follow from that.

What counts is new addresses: each one is an entry in the tables of routers and firewalls on the way. All stages share
the addresses of a minute, UDP and TCP together, and each has a share of its own, so that no stage starves another.
"""

from __future__ import annotations

from dataclasses import dataclass

from lycosa.core.errors import UsageError

LOOKUP_ADDRESSES = 25
"""New addresses of an iterative lookup, or of a scrape, which asks the nodes that it found once more."""
UPKEEP_ADDRESSES = 40
"""A minute, for the routing table: 160 contacts that are checked every 15 minutes, and searches of buckets."""
BURST_SHARE = 1 / 6
"""The part of a minute's addresses that may come at once. It is taken off the rate, so that no 60 seconds have more."""
CONNECTIONS_PER_TORRENT = 5.0
"""Assumed: most peers that are named are gone or behind a NAT."""
MINUTES_PER_DAY = 1440


@dataclass(frozen=True, slots=True)
class Profile:
    """The limits of a crawl. Rates are per minute."""

    name: str
    new_addresses: int
    """Addresses that were not contacted in the last minute: an endpoint counts once for UDP and once for TCP."""
    bytes_per_s: float
    """Of datagrams that are sent."""
    samples: int
    """Nodes that are asked for samples. They are asked once more, for the peers of what they named."""
    lookups: int
    scrapes: int
    connections: int
    """TCP connections to peers."""
    harvested: int
    """Infohashes that others asked our node for. Anybody can ask for anything."""
    connections_max: int
    """Open connections."""
    in_work_max: int
    """Infohashes that are tried at once: what their connections take is well within the time of a try."""
    peers_per_try: int
    """Peers that are connected to before an infohash is left for later."""
    queued_max: int
    """With more infohashes queued the sweep rests: half an hour of tries. Nodes forget announces after 45 minutes,
    and could say nothing when the turn of an infohash comes."""

    @property
    def planned_addresses(self) -> int:
        """The new addresses that the stages use together when each has enough to do."""
        per_search = LOOKUP_ADDRESSES * (self.lookups + self.scrapes)
        return UPKEEP_ADDRESSES + 2 * self.samples + per_search + self.connections

    @property
    def torrents_per_day(self) -> int:
        """What the connections can bring at most."""
        return round(MINUTES_PER_DAY * self.connections / CONNECTIONS_PER_TORRENT)

    def sweep_hours(self, nodes: int) -> float:
        """Return how long it takes to ask so many nodes for samples once."""
        return nodes / self.samples / 60


HOME = Profile(
    name="home",
    new_addresses=600,
    bytes_per_s=50_000.0,
    samples=50,
    lookups=2,
    scrapes=1,
    connections=280,
    harvested=20,
    connections_max=200,
    in_work_max=100,
    peers_per_try=8,
    queued_max=3_000,
)
"""For a line with a home router, whose tables hold some thousand connections."""
SERVER = Profile(
    name="server",
    new_addresses=30_000,
    bytes_per_s=1_000_000.0,
    samples=6_000,
    lookups=120,
    scrapes=40,
    connections=8_000,
    harvested=600,
    connections_max=4_000,
    in_work_max=2_000,
    peers_per_try=20,
    queued_max=50_000,
)
"""For a machine with a public address and no NAT on the way."""
PROFILES = {each.name: each for each in (HOME, SERVER)}


def profile_named(name: str) -> Profile:
    """Return a profile. Raises `UsageError`."""
    if name not in PROFILES:
        raise UsageError(f"there is no profile {name!r}: write {' or '.join(PROFILES)}")
    return PROFILES[name]
