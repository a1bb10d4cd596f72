"""Where clients of the gateway may connect: no private addresses in any spelling, no ports of mail."""

from __future__ import annotations

import pytest

from lycosa.core.errors import BadMessage, Forbidden, UsageError
from lycosa.http.core.destination import Destination, parse_authority
from lycosa.http.core.private_addresses import AllowedPrivate
from lycosa.proxies.core.gateway.access_rules import AccessRules, NamePolicy, parse_ports


@pytest.mark.parametrize(
    ("text", "to"),
    [
        (b"Shop.Example:443", ("shop.example", 443)),
        (b"shop.example", ("shop.example", 80)),
        (b"[2001:DB8::1]:443", ("2001:db8::1", 443)),
        (b"0x7f.1:80", ("127.0.0.1", 80)),
        (b"2130706433:80", ("127.0.0.1", 80)),
        ("b\u00fccher.example:80".encode(), ("xn--bcher-kva.example", 80)),
    ],
)
def test_hosts_are_parsed_as_in_browsers(text: bytes, to: tuple[str, int]):
    assert parse_authority(text, 80) == to


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b":443",
        b"a.example:",
        b"a.example:0",
        b"a.example:65536",
        b"a.example:4x3",
        b"a b:443",
        b"a@b:443",
        b"[::1:443",
        b"::1:443",
        b"a/b:443",
        b"a%41.example:443",
        b"300.1.1.1:80",
        b"a" * 300 + b":443",
        b"\xff\xfe:80",
    ],
)
def test_invalid_authorities_are_refused(text: bytes):
    with pytest.raises(BadMessage):
        parse_authority(text)


def test_connect_needs_a_port():
    with pytest.raises(BadMessage, match="HOST:PORT"):
        parse_authority(b"a.example")


def test_a_destination_is_formatted_with_brackets_and_port():
    assert Destination("::1", 443).authority == "[::1]:443"
    assert Destination("::1", 80).host_field(80) == b"[::1]"
    assert Destination("a.example", 8080).host_field(80) == b"a.example:8080"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "192.168.0.1",
        "::1",
        "fe80::1",
        "fd00::1",
        "::ffff:10.0.0.1",
        "localhost",
        "printer.local",
        "metadata.google.internal",
        "100.100.100.200",
        "0.0.0.0",
        "localhost.",
    ],
)
def test_private_addresses_are_refused(host: str):
    with pytest.raises(Forbidden, match="private address") as raised:
        AccessRules().check(Destination(host, 443))
    assert raised.value.status == 403
    AccessRules(allowed=AllowedPrivate(["*"])).check(Destination(host, 443))


@pytest.mark.parametrize(
    "spelling", [b"0x7f.1:443", b"2130706433:443", b"127.1:443", b"[::ffff:7f00:1]:443", b"017700000001:443"]
)
def test_other_spellings_of_private_addresses_are_refused(spelling: bytes):
    with pytest.raises(Forbidden):
        AccessRules().check(parse_authority(spelling))


def test_public_destinations_are_allowed():
    for host in ("example.com", "93.184.216.34", "2606:2800:220:1::1"):
        AccessRules().check(Destination(host, 443))


@pytest.mark.parametrize("port", [22, 25, 110, 445, 465, 587])
def test_ports_of_mail_and_files_are_refused(port: int):
    with pytest.raises(Forbidden, match=f"port {port}"):
        AccessRules(allowed=AllowedPrivate(["*"])).check(Destination("example.com", port))


def test_named_exceptions_are_allowed():
    rules = AccessRules(allowed=AllowedPrivate(["10.0.0.0/8", "shop.local"]))
    rules.check(Destination("10.9.9.9", 443))
    rules.check(Destination("www.shop.local", 443))
    for host in ("192.168.0.1", "other.local"):
        with pytest.raises(Forbidden):
            rules.check(Destination(host, 443))


def test_names_that_resolve_to_private_addresses_are_refused():
    rules = AccessRules()
    to = Destination("rebind.example", 443)
    rules.check_addresses(to, ["93.184.216.34"])
    for addresses in (["127.0.0.1"], ["93.184.216.34", "10.0.0.1"], ["::1"], ["fe80::1%eth0"]):
        with pytest.raises(Forbidden, match="resolves to a private address"):
            rules.check_addresses(to, addresses)


def test_which_names_are_resolved():
    name, address = Destination("a.example", 443), Destination("93.184.216.34", 443)
    assert AccessRules().must_resolve(name)
    assert not AccessRules().must_resolve(address)
    assert not AccessRules(names=NamePolicy.TRUST).must_resolve(name)
    assert not AccessRules(allowed=AllowedPrivate(["a.example"])).must_resolve(name)
    assert AccessRules(allowed=AllowedPrivate(["a.example"]), names=NamePolicy.PIN).must_resolve(name)


def test_lists_of_ports_are_parsed():
    assert parse_ports("80, 443,8000-8002") == (range(80, 81), range(443, 444), range(8000, 8003))
    for text in ("", "0", "80,", "9-8", "1-99999", "http", "-80"):
        with pytest.raises(UsageError, match="--ports"):
            parse_ports(text)
