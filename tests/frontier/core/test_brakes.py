"""What keeps a frontier from leasing more (F8)."""

from __future__ import annotations

from typing import Any

import pytest

from lycosa.frontier.core.brakes import HOSTS_MAX, brakes_of
from lycosa.frontier.core.scheduler import Host

NOW = 1000.0


def host(**values: Any) -> Host:
    return Host(**{"key": "http://a", "rank": 1.0, "backlog": 10, **values})


WAITING = {"delay_s": 1.0, "ready_at": NOW + 0.5}


@pytest.mark.parametrize(
    ("hosts", "text"),
    [
        ([], ""),
        ([host()], ""),
        ([host(**WAITING)], "delay of 1 s on 1 host"),
        ([host(**WAITING), host(delay_s=2.5, ready_at=NOW + 1)], "delay of 1 to 2.5 s on 2 hosts"),
        ([host(**WAITING), host()], ""),  # the other one may be contacted now
        ([host(**WAITING), Host(key="http://idle")], "delay of 1 s on 1 host"),
        ([host(delay_s=1.0, ready_at=NOW)], ""),
        ([host(blocked_until=NOW + 90, ready_at=NOW + 90, delay_s=1.0)], "1 host blocked for 2 min"),
        ([host(in_flight=8)], "8 transfers at a time on 1 host"),
        ([host(preparing=True, in_flight=1)], "robots.txt or IP address of 1 host"),
        ([host(in_flight=8), host(**WAITING)], "delay of 1 s on 1 host, 8 transfers at a time on 1 host"),
        ([host(**WAITING)] * (HOSTS_MAX + 1), ""),
    ],
)
def test_the_text_says_what_all_hosts_with_work_wait_for(hosts: list[Host], text: str):
    assert brakes_of(hosts, 8, NOW).text == text


def test_work_takes_at_least_as_long_as_the_delays_of_the_slowest_host():
    hosts = [host(backlog=100, delay_s=1.0), host(backlog=10, delay_s=20.0), host(backlog=10_000)]
    assert brakes_of(hosts, 8, NOW).work_s == 200.0
    assert brakes_of([host()], 8, NOW).work_s == 0.0


def test_a_block_of_all_hosts_with_work_delays_the_queued_urls():
    hosts = [
        host(blocked_until=NOW + 90, ready_at=NOW + 90, delay_s=1.0),
        host(blocked_until=NOW + 3, ready_at=NOW + 3),
    ]
    assert brakes_of(hosts, 8, NOW)[1:] == (100.0, NOW + 3)
    assert brakes_of([*hosts, host(**WAITING)], 8, NOW).blocked_until == 0.0
    assert brakes_of([*hosts, host(blocked_until=NOW - 1)], 8, NOW).blocked_until == 0.0
