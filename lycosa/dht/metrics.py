"""The Prometheus metrics of the DHT nodes of a process. They contain no addresses and no ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from lycosa.core.metrics import Metric, Samples
from lycosa.dht.core.endpoints import IPV4
from lycosa.dht.core.events import NodeStatus, Reachability, Traffic

PREFIX = "lycosa_dht"

TRAFFIC_HELP = {
    "datagrams_in": "Datagrams received.",
    "bytes_in": "Bytes received, without IP and UDP headers.",
    "datagrams_out": "Datagrams sent.",
    "bytes_out": "Bytes sent, without IP and UDP headers.",
    "queries_in": "Queries of other nodes.",
    "answers_out": "Queries of other nodes that were answered.",
    "errors_out": "Malformed datagrams answered with an error.",
    "limited": "Queries of other nodes that were not answered because of a limit.",
    "malformed": "Datagrams that are not valid KRPC messages.",
    "unexpected": "Answers that belong to no query of this node.",
    "queries_out": "Queries sent.",
    "answers_in": "Queries that were answered.",
    "errors_in": "Queries that were answered with an error.",
    "failed": "Queries that were not answered.",
}


def node_metrics(nodes: Sequence[tuple[int, NodeStatus]]) -> list[Metric]:
    """Return the metrics of nodes, each with its address family."""
    labelled = [({"family": "ipv4" if family == IPV4 else "ipv6"}, status) for family, status in nodes]
    return [
        Metric(
            f"{PREFIX}_contacts",
            "gauge",
            "Contacts in the routing table.",
            [
                ({**labels, "state": state}, getattr(status.contacts, state))
                for labels, status in labelled
                for state in ("good", "questionable", "bad")
            ],
        ),
        _gauge("buckets", "Buckets of the routing table.", [(labels, s.contacts.buckets) for labels, s in labelled]),
        _gauge("peers", "Announced peers that are stored.", [(labels, s.peers) for labels, s in labelled]),
        _gauge("infohashes", "Infohashes with a stored peer.", [(labels, s.infohashes) for labels, s in labelled]),
        _gauge("outstanding_queries", "Queries without an answer yet.", [(ls, s.outstanding) for ls, s in labelled]),
        _gauge("waiting_queries", "Queries delayed by a limit.", [(labels, s.waiting) for labels, s in labelled]),
        _gauge(
            "operations",
            "Lookups, announces and single queries that are running.",
            [(labels, s.operations) for labels, s in labelled],
        ),
        _gauge(
            "reachable",
            "Whether nodes that this node has not queried recently can reach it.",
            [(labels, float(s.reachability is Reachability.REACHABLE)) for labels, s in labelled],
        ),
        *_traffic([(labels, status.traffic) for labels, status in labelled]),
    ]


def _gauge(name: str, help_text: str, samples: Samples) -> Metric:
    return Metric(f"{PREFIX}_{name}", "gauge", help_text, samples)


def _traffic(labelled: Sequence[tuple[dict[str, str], Traffic]]) -> list[Metric]:
    return [
        Metric(
            f"{PREFIX}_{each.name}_total",
            "counter",
            TRAFFIC_HELP[each.name],
            [(labels, getattr(traffic, each.name)) for labels, traffic in labelled],
        )
        for each in fields(Traffic)
    ]
