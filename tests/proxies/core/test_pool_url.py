"""The addresses of pools, and the errors for invalid ones."""

from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.proxies.core.pool_url import PoolAddress, parse_pool_address


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("memory:", PoolAddress("memory:")),
        ("pool", PoolAddress("pool", folder="pool")),
        ("/var/lib/a b/pool", PoolAddress("/var/lib/a b/pool", folder="/var/lib/a b/pool")),
        ("redis://h", PoolAddress("redis://h?pool=default", url="redis://h", name="default")),
        (
            "redis://ann:s%40cret@h:1/2?pool=shop",
            PoolAddress("redis://h:1/2?pool=shop", url="redis://ann:s%40cret@h:1/2", name="shop"),
        ),
        (
            "rediss+cluster://a:1,b:2?ca=/x.pem&pool=a%20b",
            PoolAddress("rediss+cluster://a:1,b:2?pool=a b", url="rediss+cluster://a:1,b:2?ca=%2Fx.pem", name="a b"),
        ),
        (
            "redis+sentinel://a,b/mine/3?pool=p&sentinel_password=x",
            PoolAddress(
                "redis+sentinel://a,b/mine/3?pool=p", url="redis+sentinel://a,b/mine/3?sentinel_password=x", name="p"
            ),
        ),
        (
            "unix:///run/r.sock?db=2&pool=p",
            PoolAddress("unix:///run/r.sock?pool=p", url="unix:///run/r.sock?db=2", name="p"),
        ),
    ],
)
def test_valid_addresses_are_parsed(address: str, expected: PoolAddress) -> None:
    assert parse_pool_address(address) == expected


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "'' is not a pool of proxies: write memory:, a folder, or redis://HOST:6379/0"),
        ("memory:x", "'memory:x' is not a pool of proxies"),
        ("http://ann:secret@h/", "'h/' is not a pool of proxies"),
        ("redis://ann:secret@h?pool=", "redis://h: pool= is not a valid name: write at most 100 characters, none of {"),
        ("redis://ann:secret@h?pool=a/b", "redis://h: pool=a/b is not a valid name"),
        ("redis://ann:secret@h?queue=b", "redis://h: unknown option 'queue'; write pool= only"),
        ("redis://ann:secret@h/x", "redis://h/x: /x is not a database; write a number"),
    ],
)
def test_invalid_addresses_are_explained_without_the_password(address: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_pool_address(address)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_errors_and_representations_hide_the_password() -> None:
    address = parse_pool_address("redis://ann:secret@h?pool=b")
    assert "secret" in address.url
    assert repr(address) == "PoolAddress('redis://h?pool=b')"
