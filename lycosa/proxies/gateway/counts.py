"""The counters of a gateway. They contain no names of clients or sites, and no logins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lycosa.core.metrics import Metric


@dataclass(slots=True)
class GatewayCounts:
    """Counts `requests` by status (0: no response), opened `tunnels` by protocol, and `outcomes` of proxies by blame.

    `clients` and `tunnels_open` are current values; all others are totals.
    """

    clients: int = 0
    tunnels_open: int = 0
    requests: Counter[int] = field(default_factory=Counter)
    tunnels: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    reports: int = 0
    leases_lost: int = 0
    bytes_up: int = 0
    bytes_down: int = 0

    def metrics(self) -> list[Metric]:
        traffic = {"up": self.bytes_up, "down": self.bytes_down}
        return [
            Metric("lycosa_gateway_clients", "gauge", "Client connections.", [({}, self.clients)]),
            Metric("lycosa_gateway_tunnels", "gauge", "Open tunnels.", [({}, self.tunnels_open)]),
            _labelled("requests", "Plain requests, by status of the response.", "status", self.requests),
            _labelled("tunnels_opened", "Opened tunnels, by protocol.", "protocol", self.tunnels),
            _labelled("outcomes", "Uses of proxies, by blame of the outcome.", "blame", self.outcomes),
            _labelled("refused", "Refused requests and connections, by status or reason.", "status", self.refused),
            _total("retries", "Requests sent again.", [({}, self.retries)]),
            _total("reports", "Outcomes reported by clients.", [({}, self.reports)]),
            _total("leases_lost", "Leases that the pool took back.", [({}, self.leases_lost)]),
            _labelled("tunnel_bytes", "Bytes through tunnels.", "direction", traffic),
        ]


def _total(name: str, help_text: str, samples: list[tuple[dict[str, str], float]]) -> Metric:
    return Metric(f"lycosa_gateway_{name}_total", "counter", help_text, samples)


def _labelled(name: str, help_text: str, label: str, counts: Mapping[Any, float]) -> Metric:
    return _total(name, help_text, [({label: str(key)}, float(count)) for key, count in sorted(counts.items())])
