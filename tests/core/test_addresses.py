"""Public and private addresses and host names (C10, the SSRF guard)."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.addresses import is_public, looks_private

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "168.63.129.15",
    "169.253.255.255",
    "169.255.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.167.255.255",
    "192.169.0.0",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "2606:4700::1111",
    "2001:200::1",
    "2a00:1450::1",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]
PRIVATE = [
    "0.0.0.0",
    "0.1.2.3",
    "10.0.0.0",
    "10.255.255.255",
    "100.64.0.0",
    "100.100.100.200",
    "100.127.255.255",
    "127.0.0.1",
    "127.255.255.255",
    "168.63.129.16",
    "169.254.0.0",
    "169.254.169.254",
    "172.16.0.0",
    "172.31.255.255",
    "192.0.0.192",
    "192.0.2.1",
    "192.88.99.1",
    "192.168.255.255",
    "198.18.0.0",
    "198.19.255.255",
    "198.51.100.1",
    "203.0.113.1",
    "224.0.0.1",
    "239.255.255.255",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "::127.0.0.1",
    "::8.8.8.8",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:0:127.0.0.1",
    "64:ff9b::10.0.0.1",
    "64:ff9b:1::1",
    "100::1",
    "2001::1",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "2001:20::1",
    "2001:db8::1",
    "2002:7f00:1::1",
    "2002:a00:1::1",
    "3fff::1",
    "4000::1",
    "5f00::1",
    "fc00::1",
    "fd00:ec2::254",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
]


@pytest.mark.parametrize("ip", PUBLIC)
def test_public_addresses(ip: str):
    assert is_public(ip)


@pytest.mark.parametrize("ip", [*PRIVATE, "", "localhost", "example.com", "127.1", "0x7f000001", "[::1]", "1.1.1.1/8"])
def test_addresses_that_are_not_public(ip: str):
    assert not is_public(ip)


def test_zone_of_an_address_is_ignored():
    assert is_public("2606:4700::1111%eth0")


@given(st.integers(0, 2**32 - 1).map(IPv4Address), st.integers(0, 2**16 - 1))
def test_embedding_address_is_as_public_as_the_embedded_one(address: IPv4Address, suffix: int):
    number = int(address)
    for carrier in (0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80 | suffix):
        assert is_public(str(IPv6Address(carrier))) == is_public(str(address))


@given(st.integers(0, 2**32 - 1).map(IPv4Address) | st.integers(0, 2**128 - 1).map(IPv6Address))
def test_private_addresses_of_the_standard_library_are_not_public(address: IPv4Address | IPv6Address):
    if address.is_private or address.is_loopback or address.is_link_local or address.is_multicast:
        carried = isinstance(address, IPv6Address) and (address.ipv4_mapped or address.sixtofour)
        assert carried or not is_public(str(address))


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "printer.local",
        "metadata.google.internal",
        "nas.home.arpa",
        "localhost.localdomain",
        "local",
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7f.1",
        "0177.0.0.1",
        "017700000001",
        "0",
        "127.0.0.1.",
        "１２７.０.０.１",
        "127。0。0。1",
        "%31%32%37.0.0.1",
        "169.254.169.254",
        "0xA9FEA9FE",
        "[::1]",
        "::1",
        "[::ffff:7f00:1]",
        "[fd00::1]",
        "fe80::1%25eth0",
        "127.0.0.08",
        "1.2.3.4.5",
        "256.256.256.256",
        "",
        "a b",
        "[",
        "user@127.0.0.1",
    ],
)
def test_hosts_that_look_private(host: str):
    assert looks_private(host)


@pytest.mark.parametrize(
    "host",
    [
        "example.com",
        "EXAMPLE.com.",
        "localhost.com",
        "notlocalhost",
        "mylocal",
        "internal.example.com",
        "arpa",
        "8.8.8.8",
        "134744072",
        "[2606:4700::1111]",
        "2606:4700::1111",
        "bücher.example",
    ],
)
def test_hosts_that_do_not_look_private(host: str):
    assert not looks_private(host)


@given(st.text())
def test_any_text_is_classified_without_an_error(text: str):
    looks_private(text)
    is_public(text)
