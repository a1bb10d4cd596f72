"""Endpoints, contacts, and which addresses from other nodes may be contacted."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from lycosa.core.addresses import NOT_PUBLIC_V6, PUBLIC_V6, SIX_TO_FOUR, is_public
from lycosa.core.errors import UsageError
from lycosa.dht.core.endpoints import (
    IPV4,
    IPV6,
    AllowedNetworks,
    Contact,
    family,
    is_contactable,
    is_public_v4,
    is_public_v6,
    pack,
    pack_contacts,
    parse,
    site_of,
    split_contacts,
    text,
    with_port,
)


@pytest.mark.parametrize("written", ["192.0.2.1:6881", "[2001:db8::1]:1", "0.0.0.0:0", "[::1]:65535"])
def test_text_and_endpoint_convert_both_ways(written: str):
    assert text(parse(written)) == written


@pytest.mark.parametrize(
    "written", ["", "1.2.3.4", "1.2.3.4:x", "1.2.3.4:65536", "1.2.3.4:+1", "host:1", "[1.2.3.4", "1.2.3:1", "::1"]
)
def test_text_that_is_no_endpoint_is_a_usage_error(written: str):
    with pytest.raises(UsageError, match="ADDRESS:PORT"):
        parse(written)


def test_an_endpoint_is_in_network_byte_order():
    assert pack("127.0.0.1", 0x1234) == b"\x7f\0\0\1\x12\x34"
    assert pack("fe80::1%eth0", 1) == b"\xfe\x80" + bytes(13) + b"\x01\0\1"
    assert family(pack("::1", 1)) == IPV6
    assert with_port(pack("127.0.0.1", 1), 2) == pack("127.0.0.1", 2)


@pytest.mark.parametrize(("ip", "which"), [("1.2.3.4", IPV4), ("2001:db8::1", IPV6)])
def test_contacts_are_read_as_they_were_written(ip: str, which: int):
    contacts = [Contact(bytes([n]) * 20, pack(ip, n)) for n in range(3)]
    data = pack_contacts(contacts)
    assert split_contacts(data, which) == contacts
    assert split_contacts(data[:-1], which) == contacts[:2]
    assert split_contacts(b"def456...", which) == []


def test_a_site_is_an_ipv4_address_or_an_ipv6_prefix_of_64_bits():
    assert site_of(pack("1.2.3.4", 5)) == site_of(pack("1.2.3.4", 6)) != site_of(pack("1.2.3.5", 5))
    assert (
        site_of(pack("2001:db8::1", 5)) == site_of(pack("2001:db8::2:0:0:1", 5)) != site_of(pack("2001:db8:0:1::1", 5))
    )


@pytest.mark.parametrize(
    "ip",
    [
        "10.0.0.1",
        "127.0.0.1",
        "192.168.255.255",
        "224.0.0.1",
        "255.255.255.255",
        "0.0.0.0",
        "100.64.0.1",
        "169.254.0.1",
        "::",
        "::1",
        "fe80::1",
        "fd00::1",
        "ff02::1",
        "::ffff:1.2.3.4",
        "64:ff9b::102:304",
        "2002:a00:1::1",
        "2001:db8::1",
    ],
)
def test_addresses_that_are_not_public_are_not_contacted(ip: str):
    assert not is_contactable(pack(ip, 6881))


@pytest.mark.parametrize(
    "ip", ["1.2.3.4", "9.255.255.255", "11.0.0.0", "223.255.255.255", "2a00::1", "2002:102:304::1"]
)
def test_public_addresses_are_contacted_but_not_at_port_0(ip: str):
    assert is_contactable(pack(ip, 6881))
    assert not is_contactable(pack(ip, 0))


def test_the_user_may_allow_networks():
    allowed = AllowedNetworks(["127.0.0.0/8", "fd00::/8"])
    assert is_contactable(pack("127.9.9.9", 1), allowed)
    assert is_contactable(pack("fd12::1", 1), allowed)
    assert not is_contactable(pack("127.9.9.9", 0), allowed)
    assert not is_contactable(pack("10.0.0.1", 1), allowed)
    assert not is_contactable(pack("::1", 1), allowed)
    assert not is_contactable(pack("127.9.9.9", 1), AllowedNetworks(["::/0"]))
    assert not is_contactable(pack("::1", 1), AllowedNetworks(["0.0.0.0/0"]))
    with pytest.raises(UsageError, match="not a network"):
        AllowedNetworks(["localhost"])


def test_the_fast_check_of_ipv4_addresses_agrees_with_is_public():
    edges = {0, 2**32 - 1}
    for number in range(0, 2**32, 2**16):
        edges |= {number, number + 255, number + 256, max(number - 1, 0)}
    edges |= {int(ip_address("192.0.2.0")) + n for n in (-1, 0, 255, 256)} | {
        int(ip_address("168.63.129.16")) + n for n in (-1, 0, 1)
    }
    step = sorted(edges)[::41] + sorted(edges)[-7:]
    for number in step:
        assert is_public_v4(number.to_bytes(4)) == is_public(str(ip_address(number)))


def test_the_fast_check_of_ipv6_addresses_agrees_with_is_public():
    blocks = [*NOT_PUBLIC_V6, PUBLIC_V6, SIX_TO_FOUR]
    edges = {int(edge) + n for each in blocks for edge in (each[0], each[-1]) for n in (-1, 0, 1)}
    edges |= {int(ip_address(f"2002:{n:02x}00::1")) for n in range(256)}
    assert len(edges) > 250
    for number in edges:
        assert is_public_v6(number.to_bytes(16)) == is_public(str(ip_address(number))), str(ip_address(number))
