"""Nodes with IPv4 and IPv6 (BEP 32), in a network namespace: twelve networks, one node in each."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from tests.cli.command import environment
from tests.conftest import ROOT, need


def has_namespaces() -> bool:
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    return subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode == 0


def test_a_network_on_ipv6_finds_a_peer_in_both_families() -> None:
    need("network namespaces: unshare -rn and ip (apt-get install iproute2)", has_namespaces())
    done = subprocess.run(
        ["unshare", "-rn", sys.executable, "-m", "tests.dht.e2e.ipv6_network"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["peers"] == ["127.0.1.2:999", "[fd00:0:1::1]:999"]
    assert found["confirmed"] == 16
    assert sum(ip.startswith("fd00:") for ip in found["closest"]) == 8
    assert len(set(found["closest"])) == 16
