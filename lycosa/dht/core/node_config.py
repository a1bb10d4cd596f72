"""The settings of a node."""

from __future__ import annotations

from dataclasses import dataclass

from lycosa.core.errors import UsageError
from lycosa.dht.core.endpoints import NONE_ALLOWED, AllowedNetworks
from lycosa.dht.core.krpc import INTERVAL_S_MAX

SAMPLE_INTERVAL_S = 1800
"""Announces expire after 45 minutes, so most of a sample stays valid this long."""


@dataclass(frozen=True, slots=True)
class NodeConfig:
    """The defaults are for a node on the public network."""

    read_only: bool = False
    """For unreachable nodes (BEP 43): answer no queries, and mark our own, so that other nodes do not store us."""
    allowed_networks: AllowedNetworks = NONE_ALLOWED
    """Networks that may be contacted although they are not public."""
    external_ip: bytes = b""
    """Our packed public IP address. By default it is learned from the answers of other nodes."""
    sample_interval_s: int = SAMPLE_INTERVAL_S
    """Seconds for which the sample of our infohashes stays the same (BEP 51)."""
    report_infohashes: bool = False
    """Report the infohashes that other nodes announce or request, as events."""

    def __post_init__(self) -> None:
        if not 0 <= self.sample_interval_s <= INTERVAL_S_MAX:
            raise UsageError(
                f"sample_interval_s {self.sample_interval_s}: write 0 to {INTERVAL_S_MAX} seconds (BEP 51)"
            )
