"""Nodes with IPv4 and IPv6 (BEP 32), in a network namespace: twelve networks, one node in each."""

from __future__ import annotations

from tests.dht.e2e.namespaces import run_in_namespace


def test_a_network_on_ipv6_finds_a_peer_in_both_families() -> None:
    found = run_in_namespace("tests.dht.e2e.ipv6_network")
    assert found["peers"] == ["127.0.1.2:999", "[fd00:0:1::1]:999"]
    assert found["confirmed"] == 16
    assert sum(ip.startswith("fd00:") for ip in found["closest"]) == 8
    assert len(set(found["closest"])) == 16
