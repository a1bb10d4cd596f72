"""The setting `allow_private`, and which pages count as public: their links may not reach private addresses (C2)."""

from __future__ import annotations

import pytest

from lycosa.http.core.private_addresses import AllowedPrivate, is_public_page

SOME = AllowedPrivate(["10.1.0.0/16", "fd00::/8", "127.0.0.1/32", "intranet.example", "printer"])


@pytest.mark.parametrize(
    ("ip", "may"),
    [
        ("8.8.8.8", True),
        ("10.1.2.3", True),
        ("::ffff:10.1.2.3", True),
        ("10.2.0.1", False),
        ("127.0.0.1", True),
        ("127.0.0.2", False),
        ("fd12::1", True),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("::1", False),
        ("", False),
        ("localhost", False),
    ],
)
def test_allowed_networks(ip: str, may: bool) -> None:
    assert SOME.may_connect(ip) is may
    assert AllowedPrivate(["*"]).may_connect(ip)


@pytest.mark.parametrize(
    ("host", "named"),
    [
        ("intranet.example", True),
        ("Wiki.Intranet.Example.", True),
        ("notintranet.example", False),
        ("printer", True),
        ("10.1.2.3", False),
        ("example", False),
        ("", False),
    ],
)
def test_allowed_names(host: str, named: bool) -> None:
    assert SOME.is_named(host) is named
    assert AllowedPrivate(["*"]).is_named(host)
    assert not AllowedPrivate([]).is_named(host)


def test_nothing_is_allowed_by_default() -> None:
    assert not AllowedPrivate([]).may_connect("127.0.0.1")
    assert AllowedPrivate([]).may_connect("1.1.1.1")


@pytest.mark.parametrize(
    ("ip", "host", "public"),
    [
        ("8.8.8.8", "a.example", True),
        ("8.8.8.8", "localhost", True),
        ("10.0.0.1", "a.example", False),
        ("", "a.example", True),
        ("", "localhost", False),
        ("", "127.0.0.1", False),
        ("", "[::1]", False),
    ],
)
def test_page_is_public_by_its_address_or_if_that_is_unknown_by_its_host(ip: str, host: str, public: bool) -> None:
    assert is_public_page(ip, host) is public
