"""Decides which hosts return real infohashes. No metadata can be fetched for an invented infohash, because no metadata
has this hash.

`now` is in seconds; all calls must use the same clock.
"""

from __future__ import annotations

from typing import NamedTuple

from lycosa.core.recent_dict import RecentDict
from lycosa.dht.core.endpoints import site_of

HOSTS_MAX = 20_000
TRIED_MIN = 100
"""Tries before a host is judged. About 30 in 100 infohashes of an honest host are fetched."""
FETCHED_MIN = 0.01
DISTRUST_S = 86_400.0


class SamplerRecord(NamedTuple):
    """Numbers of tried and fetched infohashes of a host since `since`."""

    tried: int
    fetched: int
    since: float


class SamplerTrust:
    """The counts of each host, in memory only: addresses are not stored."""

    def __init__(self) -> None:
        self._hosts: RecentDict[bytes, SamplerRecord] = RecentDict(HOSTS_MAX)

    def tried(self, endpoint: bytes, now: float, *, fetched: bool) -> None:
        site = site_of(endpoint)
        record = self._hosts.get(site)
        if record is None or now >= record.since + DISTRUST_S:
            record = SamplerRecord(0, 0, now)
        self._hosts[site] = SamplerRecord(record.tried + 1, record.fetched + fetched, record.since)

    def trusts(self, endpoint: bytes, now: float) -> bool:
        record = self._hosts.get(site_of(endpoint))
        if record is None or record.tried < TRIED_MIN or now >= record.since + DISTRUST_S:
            return True
        return record.fetched >= record.tried * FETCHED_MIN
