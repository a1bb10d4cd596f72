"""Decides which peers may be connected to. Announces are not trusted, because they may have any address.

- A host (an IPv4 address or an IPv6 /64) gets one connection at a time and at most ten per minute, so that forged
  announces cannot make us flood a victim.
- Private and reserved addresses are never contacted.
- A peer that cannot be reached, is too slow or breaks the protocol is paused. Each further such failure doubles the
  pause.
- A host that sends metadata with a wrong hash, or a flood, is banned for an hour.

All tables are bounded. `now` is monotonic seconds.
"""

from __future__ import annotations

from lycosa.core.rate_limit import RateLimit
from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import NONE_ALLOWED, AllowedNetworks, is_contactable, site_of
from lycosa.dht.core.metadata.failures import PeerFailure

CONNECTIONS_BURST = 5
CONNECTIONS_PER_S = 5 / 60
"""At most ten connections to one host in any 60 seconds: the burst and five more."""

HOSTS_MAX = 131_072
"""Maximum number of hosts whose connections are counted: two minutes at 1,000 new hosts a second. A full table refuses
unknown hosts."""

PAUSE_S = 60.0
PAUSE_MAX_S = 3600.0
"""Each further failure of a peer doubles its pause, from PAUSE_S up to this."""

BAN_S = 3600.0
"""Seconds of the ban of a host that sent metadata with a wrong hash, or a flood."""

PAUSED_MAX = 65_536
"""Maximum number of remembered pauses, and of bans. The oldest are forgotten, so these peers are tried too early."""

BLAMES_PEER = frozenset({PeerFailure.UNREACHABLE, PeerFailure.TIMEOUT, PeerFailure.PROTOCOL})
BLAMES_HOST = frozenset({PeerFailure.WRONG_HASH, PeerFailure.FLOOD})
"""Failures that pause a peer (first set) or ban its host (second set). Others mostly concern one torrent only, so the
peer may be tried again at once."""


class PeerGate:
    """Admits connections to peers, depending on how earlier connections ended."""

    def __init__(self, allowed: AllowedNetworks = NONE_ALLOWED) -> None:
        self._allowed = allowed
        self._rate = RateLimit[bytes](CONNECTIONS_PER_S, CONNECTIONS_BURST, keys_max=HOSTS_MAX, refuse_when_full=True)
        self._connected: set[bytes] = set()
        self._paused: RecentDict[bytes, tuple[float, float]] = RecentDict(PAUSED_MAX)
        self._banned: RecentDict[bytes, float] = RecentDict(PAUSED_MAX)

    def is_busy(self, endpoint: bytes) -> bool:
        return site_of(endpoint) in self._connected

    def refusal(self, endpoint: bytes, now: float) -> PeerFailure | None:
        """Return why this peer must not be contacted now. Rate limits are not checked."""
        if not is_contactable(endpoint, self._allowed):
            return PeerFailure.NOT_PUBLIC
        if self._banned.get(site_of(endpoint), 0.0) > now or self._paused.get(endpoint, (0.0, 0.0))[0] > now:
            return PeerFailure.PAUSED
        return None

    def open(self, endpoint: bytes, now: float) -> PeerFailure | None:
        """Return why this peer may not be connected to. If None, the connection counts as open until `close`."""
        host = site_of(endpoint)
        assert host not in self._connected
        if refused := self.refusal(endpoint, now):
            return refused
        if not self._rate.allow(host, now):
            return PeerFailure.LIMITED
        self._connected.add(host)
        return None

    def close(self, endpoint: bytes, failure: PeerFailure | None, now: float) -> None:
        """`failure` is None if the connection was no longer needed."""
        self._connected.discard(site_of(endpoint))
        if failure in BLAMES_HOST:
            self._banned[site_of(endpoint)] = now + BAN_S
        elif failure in BLAMES_PEER:
            pause_s = min(PAUSE_MAX_S, 2 * self._paused.get(endpoint, (0.0, PAUSE_S / 2))[1])
            self._paused[endpoint] = (now + pause_s, pause_s)
        else:
            self._paused.pop(endpoint, None)
