"""Profiles: how much of an internet connection and router a crawl may use, and how many torrents a day that allows.

The scarce resource is new addresses: each takes an entry in the tables of routers and firewalls on the way. One limit
per minute holds for UDP and TCP together. Each stage has its own rate, so no stage starves another.
"""

from __future__ import annotations

from dataclasses import dataclass

from lycosa.core.errors import UsageError

LOOKUP_ADDRESSES = 25
"""New addresses of a lookup or a scrape. The second queries of a scrape go to the same nodes."""
UPKEEP_ADDRESSES = 40
"""New addresses per minute for the routing table: 160 contacts checked every 15 minutes, and bucket refreshes."""
BURST_SHARE = 1 / 6
"""Share of a minute's operations that a stage may start at once after an idle time."""
CONNECTIONS_PER_TORRENT = 5.0
"""Assumed connections per fetched torrent: most peers are gone or behind a NAT."""
MINUTES_PER_DAY = 1440


@dataclass(frozen=True, slots=True)
class Profile:
    """The limits of a crawl. Rates are per minute."""

    name: str
    new_addresses: int
    """Endpoints that were not contacted in the last minute. An endpoint counts once for UDP and once for TCP."""
    bytes_per_s: float
    """Bytes of datagrams sent."""
    samples: int
    """Sample queries. Each node is queried again later, for the peers of its infohashes."""
    lookups: int
    scrapes: int
    connections: int
    """TCP connections to peers."""
    harvested: int
    """Infohashes queued because other nodes asked our node for their peers. Such requests are unverified."""
    returned: int
    """Evicted torrents that are queued again: at most 40 % of the tries, so that other infohashes are tried too."""
    connections_max: int
    in_work_max: int
    """Maximum number of concurrent tries. They share `connections` per minute, and each must get its connections within
    its time limit."""
    peers_per_try: int
    """Maximum number of peers that a try connects to."""
    queued_max: int
    """The sweep rests while more infohashes than this are queued. Trying this many takes half an hour, which is short
    enough: nodes forget announces after 45 minutes."""

    @property
    def planned_addresses(self) -> int:
        per_search = LOOKUP_ADDRESSES * (self.lookups + self.scrapes)
        return UPKEEP_ADDRESSES + 2 * self.samples + per_search + self.connections

    @property
    def torrents_per_day(self) -> int:
        return round(MINUTES_PER_DAY * self.connections / CONNECTIONS_PER_TORRENT)

    def sweep_hours(self, nodes: int) -> float:
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
    returned=20,
    connections_max=200,
    in_work_max=100,
    peers_per_try=8,
    queued_max=3_000,
)
"""For a machine behind a home router, whose tables hold a few thousand connections."""
SERVER = Profile(
    name="server",
    new_addresses=30_000,
    bytes_per_s=1_000_000.0,
    samples=6_000,
    lookups=120,
    scrapes=40,
    connections=8_000,
    harvested=600,
    returned=600,
    connections_max=4_000,
    in_work_max=2_000,
    peers_per_try=20,
    queued_max=50_000,
)
"""For a machine with a public address and no NAT on the way."""
PROFILES = {each.name: each for each in (HOME, SERVER)}


def profile_named(name: str) -> Profile:
    """Return the profile with this name. Raises `UsageError`."""
    if name not in PROFILES:
        raise UsageError(f"there is no profile {name!r}: write {' or '.join(PROFILES)}")
    return PROFILES[name]
