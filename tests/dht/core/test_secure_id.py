"""BEP 42: ids that fit an address, and the votes on our own address."""

from __future__ import annotations

import random
from ipaddress import ip_address

import pytest

from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.secure_id import (
    VOTES_MAX,
    VOTES_MIN,
    ExternalAddressVotes,
    crc32c,
    is_exempt,
    is_secure,
    secure_id,
)

VECTORS = [
    ("124.31.75.21", "5fbfbff10c5d6a4ec8a88e4c6ab4c28b95eee401"),
    ("21.75.31.124", "5a3ce9c14e7a08645677bbd1cfe7d8f956d53256"),
    ("65.23.51.170", "a5d43220bc8f112a3d426c84764f8c2a1150e616"),
    ("84.124.73.14", "1b0321dd1bb1fe518101ceef99462b947a01ff41"),
    ("43.213.53.83", "e56f6cbf5b7c4be0237986d5243b87aa6d51305a"),
]


def packed(ip: str) -> bytes:
    return ip_address(ip).packed


def libtorrent_generate_id_impl(ip: bytes, r: int) -> tuple[int, int, int]:
    """Return the first three bytes of libtorrent's `generate_id_impl` (src/kademlia/node_id.cpp), random bits 0.

    The CRC is boost's `crc_optimal<32, 0x1EDC6F41, 0xFFFFFFFF, 0xFFFFFFFF, true, true>`, bit by bit, from its
    definition: the input and the result are reflected.
    """
    mask = [0x03, 0x0F, 0x3F, 0xFF] if len(ip) == 4 else [0x01, 0x03, 0x07, 0x0F, 0x1F, 0x3F, 0x7F, 0xFF]
    octets = [byte & bits for byte, bits in zip(ip, mask, strict=False)]
    octets[0] |= (r & 0x7) << 5
    remainder = 0xFFFFFFFF
    for octet in octets:
        remainder ^= int(f"{octet:08b}"[::-1], 2) << 24
        for _ in range(8):
            remainder = (remainder << 1 ^ 0x1EDC6F41 if remainder >> 31 else remainder << 1) & 0xFFFFFFFF
    c = int(f"{remainder:032b}"[::-1], 2) ^ 0xFFFFFFFF
    return c >> 24 & 0xFF, c >> 16 & 0xFF, c >> 8 & 0xF8


def test_crc32c_has_its_check_value():
    assert crc32c(b"123456789") == 0xE3069283


@pytest.mark.parametrize(("ip", "node_id"), VECTORS)
def test_ids_agree_with_the_test_vectors_of_bep_42(ip: str, node_id: str):
    assert is_secure(bytes.fromhex(node_id), packed(ip))
    assert not is_secure(bytes.fromhex(node_id), packed("124.31.75.22"))
    assert secure_id(packed(ip), bytes.fromhex(node_id)) == bytes.fromhex(node_id)


@pytest.mark.parametrize(
    "ip", [ip for ip, _ in VECTORS] + ["2001:db8:85a3:8d3::1", "2a00:1450:4001:81b::200e", "ffff::1"]
)
@pytest.mark.parametrize("r", [0, 1, 7, 86, 255])
def test_ids_are_those_of_libtorrent(ip: str, r: int):
    node_id = secure_id(packed(ip), bytes(19) + bytes([r]))
    assert (node_id[0], node_id[1], node_id[2] & 0xF8) == libtorrent_generate_id_impl(packed(ip), r)


@pytest.mark.parametrize("which", [4, 16])
def test_an_id_is_secure_at_its_own_address_only(which: int):
    chance = random.Random(which)
    accepted = 0
    for _ in range(300):
        ip, other = (chance.randbytes(which) for _ in range(2))
        node_id = secure_id(ip, chance.randbytes(20))
        assert is_secure(node_id, ip)
        accepted += is_secure(node_id, other) and not is_exempt(other)
    assert accepted == 0


def test_the_lower_half_of_an_ipv6_address_does_not_count():
    node_id = secure_id(packed("2001:db8:1:2::1"), bytes(range(20)))
    assert is_secure(node_id, packed("2001:db8:1:2:ffff:ffff:ffff:ffff"))


@pytest.mark.parametrize(
    "ip", ["10.1.2.3", "172.31.0.1", "192.168.0.1", "169.254.1.1", "127.0.0.9", "::1", "fe80::1", "fd00::1"]
)
def test_every_id_is_secure_on_a_local_network(ip: str):
    assert is_secure(bytes(20), packed(ip))


def test_ids_are_checked_at_addresses_just_outside_local_networks():
    assert not any(is_secure(bytes(20), packed(ip)) for ip in ("11.0.0.1", "172.32.0.1", "128.0.0.1", "fec0::1"))


OURS = pack("1.2.3.4", 6881)


def voter(number: int) -> bytes:
    return pack(f"5.6.{number}.7", 1)


def test_the_address_is_believed_when_several_networks_agree():
    votes = ExternalAddressVotes()
    assert [votes.vote(OURS, voter(n)) for n in range(VOTES_MIN)] == [False] * (VOTES_MIN - 1) + [True]
    assert votes.address == packed("1.2.3.4")
    assert not votes.vote(OURS, voter(99))


def test_a_network_has_one_vote():
    votes = ExternalAddressVotes()
    assert not any(votes.vote(OURS, pack(f"5.6.7.{n}", n + 1)) for n in range(256))
    votes = ExternalAddressVotes()
    assert not any(votes.vote(pack("2a00::1", 1), pack(f"2a01:1:2:{n:x}::1", 1)) for n in range(256))


def test_each_address_of_a_local_network_has_a_vote():
    votes = ExternalAddressVotes()
    assert any(votes.vote(OURS, pack(f"127.0.0.{n}", 1)) for n in range(VOTES_MIN))


def test_half_of_the_votes_do_not_change_the_address():
    votes = ExternalAddressVotes(packed("1.2.3.4"))
    assert not any(votes.vote(OURS, voter(n)) for n in range(20))
    assert not any(votes.vote(pack("6.6.6.6", 1), voter(n)) for n in range(20, 40))
    assert votes.address == packed("1.2.3.4")


def test_the_most_votes_are_not_enough_without_a_majority():
    votes = ExternalAddressVotes()
    for n in range(10):
        votes.vote(pack(f"7.7.7.{n}", 1), voter(n))
    assert not any(votes.vote(OURS, voter(n)) for n in range(20, 30))
    assert votes.vote(OURS, voter(30))


def test_a_new_address_wins_when_more_than_half_report_it():
    votes = ExternalAddressVotes()
    for n in range(VOTES_MAX):
        votes.vote(OURS, voter(n))
    changed = [votes.vote(pack("9.9.9.9", 6881), voter(n)) for n in range(VOTES_MAX)]
    assert changed.index(True) == VOTES_MAX // 2
    assert sum(changed) == 1
    assert votes.address == packed("9.9.9.9")


@pytest.mark.parametrize("said", [b"", b"123", pack("192.168.1.2", 1), pack("2a00::1", 1), packed("10.0.0.1")])
def test_private_malformed_and_other_family_addresses_are_not_counted_as_votes(said: bytes):
    votes = ExternalAddressVotes()
    assert not any(votes.vote(said, voter(n)) for n in range(20))


def test_an_address_without_port_is_a_vote():
    votes = ExternalAddressVotes()
    assert any(votes.vote(packed("1.2.3.4"), voter(n)) for n in range(VOTES_MIN))
