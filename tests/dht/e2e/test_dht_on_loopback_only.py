"""Our node and real clients on loopback, on a machine from which packets could leave."""

from __future__ import annotations

import pytest

from tests.dht.e2e.namespaces import run_in_namespace


def test_nothing_is_sent_off_loopback() -> None:
    pytest.importorskip("libtorrent", reason="needs libtorrent: pip install 'lycosa[dev]'")
    found = run_in_namespace("tests.dht.e2e.network_with_exit")
    assert found["sent"] == 0
    assert found["confirmed"] == 4
    assert found["peers"] == ["127.0.3.1:9"]
    assert "4 not public" in found["failures"]
