"""The output of `lycosa dht node`: rates, reachability, how to open the port."""

from __future__ import annotations

import pytest

from lycosa.cli.dht.node_report import AddressAdvice, TrafficRate, TrafficRates, status_line
from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.events import NodeStatus, Reachability, Traffic
from lycosa.dht.core.routing.table import TableCounts


def test_rates_are_those_since_the_last_update() -> None:
    rates = TrafficRates()
    assert rates.update(Traffic(queries_in=5), 100.0) == TrafficRate()
    later = Traffic(queries_in=25, queries_out=10, bytes_in=4000, bytes_out=20)
    assert rates.update(later, 102.0) == TrafficRate(10.0, 5.0, 2000.0, 10.0)
    assert rates.update(later, 102.0) == TrafficRate()


def test_the_status_line_shows_contacts_traffic_and_reachability() -> None:
    status = NodeStatus(
        node_id=bytes(20),
        external_ip=b"",
        reachability=Reachability.REACHABLE,
        contacts=TableCounts(1200, 3, 1, 9),
        peers=1,
        infohashes=2,
        outstanding=0,
        waiting=0,
        operations=0,
        round_trip_s=None,
        traffic=Traffic(answers_out=12345, limited=7),
    )
    line = status_line(pack("192.0.2.1", 1), status, TrafficRate(1.5, 0.25, 2048, 0))
    assert line == (
        "IPv4 reachable: 1,200 good, 3 questionable, 1 bad contacts, in 1.5 queries/s 2.0 kB/s, "
        "out 0.2 queries/s 0 B/s, 12,345 answered, 7 refused by limits, 1 peer of 2 torrents"
    )


@pytest.mark.parametrize(
    ("address", "read_only", "said"),
    [
        (
            "127.0.0.1",
            False,
            "only this machine can reach a loopback address: write --bind 0.0.0.0:6881 for the public network",
        ),
        ("::1", False, "only this machine can reach a loopback address: write --bind [::]:6881 for the public network"),
        ("0.0.0.0", True, "read-only: it sends queries but answers none, so no port needs to be open"),
        ("0.0.0.0", False, "others can reach it if UDP port 6881 is open in the firewall and forwarded by the router"),
    ],
)
def test_the_advice_depends_on_address_and_options(address: str, read_only: bool, said: str) -> None:
    assert AddressAdvice(pack(address, 6881), is_read_only=read_only).at_start() == [said]


def test_a_change_of_reachability_is_reported_once() -> None:
    advice = AddressAdvice(pack("192.0.2.1", 6881), is_read_only=False)
    assert advice.on_change(Reachability.UNKNOWN) == []
    [unreachable] = advice.on_change(Reachability.UNREACHABLE)
    assert unreachable.startswith("no other node has reached it for 15 minutes: open UDP port 6881 in the firewall")
    assert advice.on_change(Reachability.UNREACHABLE) == []
    [reachable] = advice.on_change(Reachability.REACHABLE)
    assert reachable.startswith("others can reach it")


@pytest.mark.parametrize(("address", "read_only"), [("127.0.0.1", False), ("192.0.2.1", True)])
def test_no_advice_for_loopback_and_read_only_nodes(address: str, read_only: bool) -> None:
    advice = AddressAdvice(pack(address, 6881), is_read_only=read_only)
    assert advice.on_change(Reachability.UNREACHABLE) == []
