from __future__ import annotations

import pytest
from starlette.requests import Request

from lycosa.search.site.limits import RequestLimit, client_of


def request(host: str) -> Request:
    return Request({"type": "http", "client": (host, 1), "headers": []})


def test_a_client_has_a_burst_and_a_rate_per_minute():
    now = 0.0
    limit = RequestLimit(60, 3, lambda: now)
    assert [limit.wait_s("a") for _ in range(4)] == [0, 0, 0, pytest.approx(1)]
    assert limit.wait_s("b") == 0
    now = 1.0
    assert [limit.wait_s("a") for _ in range(2)] == [0, pytest.approx(1)]
    limit.put_back("a")
    assert limit.wait_s("a") == 0
    now = 1000.0
    assert [limit.wait_s("a") > 0 for _ in range(4)] == [False, False, False, True]


def test_a_network_of_ipv6_is_one_client():
    assert client_of(request("192.0.2.1")) == "192.0.2.1"
    assert client_of(request("2001:db8::1")) == client_of(request("2001:db8::ffff:1")) == "2001:db8::/64"
    # An IPv4 address in IPv6 form, as from a reverse proxy that listens for both IPv4 and IPv6.
    assert client_of(request("::ffff:192.0.2.1")) == "192.0.2.1"
    assert client_of(request("testclient")) == "testclient"
