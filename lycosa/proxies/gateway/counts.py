"""What a gateway has done, as numbers; none of them names a client, a site or a login."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from lycosa.core.metrics import Metric


@dataclass(slots=True)
class Counts:
    """`requests` by status (0: given up), `tunnels` by how they were asked for, `failures` of proxies by blame.

    `clients` and `tunnels_open` are now; `tunnels` are those that were opened.
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
        """Return them for Prometheus."""
        up, down = {"direction": "up"}, {"direction": "down"}
        return [
            Metric("lycosa_gateway_clients", "gauge", "Connections of clients.", [({}, self.clients)]),
            Metric("lycosa_gateway_tunnels", "gauge", "Tunnels that are open.", [({}, self.tunnels_open)]),
            _by("requests", "Plain requests, by status of the answer.", "status", self.requests),
            _by("tunnels_opened", "Tunnels, by what asked for them.", "by", self.tunnels),
            _by("outcomes", "Uses of proxies, by whom the outcome blames.", "blame", self.outcomes),
            _by("refused", "What clients were refused, by status.", "status", self.refused),
            Metric("lycosa_gateway_retries_total", "counter", "Requests sent again.", [({}, self.retries)]),
            Metric("lycosa_gateway_reports_total", "counter", "Reports of clients.", [({}, self.reports)]),
            Metric(
                "lycosa_gateway_leases_lost_total", "counter", "Leases the pool took back.", [({}, self.leases_lost)]
            ),
            Metric(
                "lycosa_gateway_tunnel_bytes_total",
                "counter",
                "Bytes through tunnels.",
                [(up, self.bytes_up), (down, self.bytes_down)],
            ),
        ]


def _by(name: str, said: str, label: str, counts: Counter[int] | Counter[str]) -> Metric:
    samples = [
        ({label: str(key)}, float(count)) for key, count in sorted(counts.items(), key=lambda each: str(each[0]))
    ]
    return Metric(f"lycosa_gateway_{name}_total", "counter", said, samples)
