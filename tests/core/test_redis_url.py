"""Addresses of a Redis, read or refused (C3, C4, C6)."""

from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import Form, read_address


def test_addresses():
    assert read_address("redis://host").nodes == [("host", 6379)]
    assert read_address("redis+cluster://ann:p%40ss@a,b:7/").login == ("ann", "p@ss")
    assert read_address("redis+cluster://a,b:7").nodes == [("a", 6379), ("b", 7)]
    watched = read_address("rediss+sentinel://:s@a,b:7/shop/3?sentinel_password=t")
    assert (watched.form, watched.nodes, watched.master) == (Form.SENTINEL, [("a", 26379), ("b", 7)], "shop")
    assert (watched.database, watched.login, watched.sentinel_login) == (3, (None, "s"), (None, "t"))
    assert watched.text == "rediss+sentinel://a,b:7/shop/3"
    assert read_address("redis+cluster://a,[::1]:3").nodes == [("a", 6379), ("::1", 3)]
    found = read_address("unix:///run/r.sock?db=3")
    assert (found.socket, found.database, found.nodes) == ("/run/r.sock", 3, [])
    assert read_address("rediss://h?ca=/nowhere").files == {"ca": "/nowhere"}
    assert read_address("redis://h/1?stream=s", own=["stream"]).own == {"stream": "s"}


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://host/", "http://host/ is no address of a Redis: write redis://host:6379/0"),
        ("redis://h:0x1/0", "'h:0x1' is no host; write HOST or HOST:PORT"),
        ("redis+sentinel://:secret@a,b", "say what the Sentinels watch, redis.sentinel://a,b/NAME"),
        ("redis+sentinel://a/shop/x", "/x is no database; write a number"),
        ("redis://host/9999999999", "is no database; write a number"),
        ("redis+cluster://a,b/1", "/1 is no database; write none: a cluster has one"),
        ("redis://a,b", "'a,b' is no host; write HOST or HOST:PORT .several with redis.cluster"),
        ("redis://host:99999", "is no host"),
        ("redis://a..b:6379/0", "'a..b:6379' is no host"),
        (f"redis://{'a' * 64}/0", "is no host"),
        ("rediss://host?key=me.key", "key= is that of a certificate; write cert=FILE, too"),
        ("redis://:secret@", "'' is no host"),
        ("unix://", "names no socket; write unix:///run/redis/redis.sock"),
        ("redis://:secret@host?ca=x", "there is no option 'ca'; write none"),
        ("rediss://host?password=secret", "there is no option 'password'; write ca=, cert=, key= only"),
        ("redis://[::1", "no address of a Redis"),
        ("127.0.0.1:6379", "^127.0.0.1:6379 is no address of a Redis"),
        ("http://me:secret@host/?secret", "^host/ is no address of a Redis"),
        ("redis://:a/secret@host/0", "write %2F for /"),
        ("redis://:a?secret@host/0", "%3F for [?]"),
        ("redis://:a#secret@host/0", "%23 for #"),
    ],
)
def test_addresses_that_are_none(url, says):
    with pytest.raises(UsageError, match=says) as told:
        read_address(url)
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)
