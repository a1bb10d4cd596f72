"""Whether other nodes can reach those of a crawl: the best result counts; read-only and local nodes are ignored."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.events import Reachability
from lycosa.dht.crawler.monitor import nodes_of, reachability_of
from lycosa.dht.session import is_loopback
from tests.dht.crawler.views import NODE

REACHABLE, UNKNOWN, UNREACHABLE = Reachability.REACHABLE, Reachability.UNKNOWN, Reachability.UNREACHABLE


@pytest.mark.parametrize(
    ("nodes", "found"),
    [
        ([("192.0.2.1", REACHABLE)], REACHABLE),
        ([("192.0.2.1", UNREACHABLE), ("2001:db8::1", REACHABLE)], REACHABLE),
        ([("192.0.2.1", UNREACHABLE), ("2001:db8::1", UNKNOWN)], UNKNOWN),
        ([("192.0.2.1", UNREACHABLE)], UNREACHABLE),
        ([("127.0.0.1", UNREACHABLE)], UNKNOWN),
        ([("127.0.0.1", UNREACHABLE), ("192.0.2.1", UNREACHABLE)], UNREACHABLE),
    ],
)
def test_the_best_reachability_counts(nodes: list[tuple[str, Reachability]], found: Reachability) -> None:
    endpoints = [pack(host, 6881) for host, _ in nodes]
    statuses = [replace(NODE, reachability=each) for _, each in nodes]
    shown = nodes_of(endpoints, statuses, is_read_only=False)
    assert reachability_of(shown) is found
    assert {node.reachability for endpoint, node in shown if is_loopback(endpoint)} <= {UNKNOWN}
    assert reachability_of(nodes_of(endpoints, statuses, is_read_only=True)) is UNKNOWN
