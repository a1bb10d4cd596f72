"""Which peers may be connected to: rates per host, pauses, bans, and addresses that are never contacted."""

from __future__ import annotations

import pytest

from lycosa.dht.core.endpoints import AllowedNetworks, pack
from lycosa.dht.core.metadata import peer_gate
from lycosa.dht.core.metadata.failures import PeerFailure
from lycosa.dht.core.metadata.peer_gate import BAN_S, PAUSE_MAX_S, PAUSE_S, PeerGate

PEER, NEIGHBOUR = pack("8.8.8.8", 6881), pack("8.8.8.8", 6882)


@pytest.mark.parametrize(
    ("ip", "port"),
    [("10.0.0.1", 25), ("127.0.0.1", 80), ("224.0.0.1", 5), ("8.8.8.8", 0), ("::1", 5), ("fe80::1", 5), ("fc00::1", 5)],
)
def test_private_and_reserved_addresses_are_never_contacted(ip, port):
    assert PeerGate().open(pack(ip, port), 0.0) is PeerFailure.NOT_PUBLIC


def test_private_addresses_are_contacted_if_their_network_is_allowed():
    gate = PeerGate(AllowedNetworks(["127.0.0.0/8"]))
    assert gate.open(pack("127.0.0.9", 80), 0.0) is None
    assert gate.open(pack("10.0.0.1", 80), 0.0) is PeerFailure.NOT_PUBLIC
    assert gate.open(pack("127.0.0.8", 0), 0.0) is PeerFailure.NOT_PUBLIC


def test_a_host_is_busy_while_a_connection_is_open_whatever_the_port():
    gate = PeerGate()
    assert not gate.is_busy(PEER)
    gate.open(PEER, 0.0)
    assert gate.is_busy(PEER)
    assert gate.is_busy(NEIGHBOUR)
    gate.close(PEER, None, 1.0)
    assert not gate.is_busy(NEIGHBOUR)


def test_ipv6_addresses_with_the_same_64_bit_prefix_are_one_host():
    gate = PeerGate()
    gate.open(pack("2001:470::1", 1), 0.0)
    assert gate.is_busy(pack("2001:470::ffff", 9))
    assert not gate.is_busy(pack("2001:470:0:1::1", 1))


def test_a_host_gets_at_most_ten_connections_in_any_minute():
    gate = PeerGate()
    opened: list[float] = []
    for tenth in range(3000):
        now = tenth / 10
        endpoint = pack("8.8.8.8", 1 + tenth)  # forged announces may have any port
        if gate.open(endpoint, now) is None:
            opened.append(now)
            gate.close(endpoint, PeerFailure.NO_METADATA, now)
    in_a_minute = [sum(start <= each < start + 60 for each in opened) for start in opened]
    assert max(in_a_minute) <= 10
    assert len(opened) >= 5 * 5, "the host gets connections in every later minute, too"


@pytest.mark.parametrize("failure", [PeerFailure.UNREACHABLE, PeerFailure.TIMEOUT, PeerFailure.PROTOCOL])
def test_a_peer_that_failed_is_paused_for_longer_each_time(failure):
    gate, now = PeerGate(), 0.0
    for pause_s in (PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S):
        assert gate.open(PEER, now) is None
        gate.close(PEER, failure, now)
        assert gate.open(PEER, now + pause_s - 1) is PeerFailure.PAUSED
        now += pause_s
    for _ in range(10):
        now += 2 * PAUSE_MAX_S
        gate.open(PEER, now)
        gate.close(PEER, failure, now)
    assert gate.open(PEER, now + PAUSE_MAX_S) is None


def test_only_the_peer_is_paused_not_its_host():
    gate = PeerGate()
    gate.open(PEER, 0.0)
    gate.close(PEER, PeerFailure.UNREACHABLE, 0.0)
    assert gate.open(NEIGHBOUR, 1.0) is None


def test_after_a_success_the_pauses_are_short_again():
    gate = PeerGate()
    for now, failure in ((0.0, PeerFailure.TIMEOUT), (100.0, None), (200.0, PeerFailure.TIMEOUT)):
        assert gate.open(PEER, now) is None
        gate.close(PEER, failure, now)
    assert gate.open(PEER, 200.0 + PAUSE_S) is None


@pytest.mark.parametrize("failure", [PeerFailure.WRONG_HASH, PeerFailure.FLOOD])
def test_a_host_that_cheats_is_banned(failure):
    gate = PeerGate()
    gate.open(PEER, 0.0)
    gate.close(PEER, failure, 0.0)
    assert gate.open(NEIGHBOUR, BAN_S - 1) is PeerFailure.PAUSED
    assert gate.open(NEIGHBOUR, BAN_S) is None


@pytest.mark.parametrize(
    "failure", [PeerFailure.NO_METADATA, PeerFailure.OTHER_INFOHASH, PeerFailure.LOCAL, PeerFailure.CLOSED]
)
def test_failures_about_one_torrent_do_not_count(failure):
    gate = PeerGate()
    gate.open(PEER, 0.0)
    gate.close(PEER, failure, 0.0)
    assert gate.open(PEER, 0.0) is None


def test_remembered_peers_and_hosts_are_bounded(monkeypatch):
    monkeypatch.setattr(peer_gate, "PAUSED_MAX", 50)
    monkeypatch.setattr(peer_gate, "HOSTS_MAX", 200)
    gate, opened = PeerGate(), []
    for number in range(1000):
        endpoint = pack(f"8.8.{number // 250}.{number % 250}", 6881)
        opened.append(gate.open(endpoint, 0.0))
        gate.close(endpoint, PeerFailure.TIMEOUT if number % 2 else PeerFailure.FLOOD, 0.0)
    assert (len(gate._paused), len(gate._banned)) == (50, 50)
    assert opened == [None] * 100 + [PeerFailure.LIMITED] * 900, "half of the table, for hosts of the current minute"
