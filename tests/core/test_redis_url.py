"""URLs of a Redis, parsed or refused (C3, C4, C6)."""

from __future__ import annotations

import pytest

from lycosa.core.errors import UsageError
from lycosa.core.redis_url import RedisMode, parse_redis_url


def test_urls_of_every_mode():
    assert parse_redis_url("redis://host").nodes == [("host", 6379)]
    assert parse_redis_url("redis+cluster://ann:p%40ss@a,b:7/").login == ("ann", "p@ss")
    assert parse_redis_url("redis+cluster://a,b:7").nodes == [("a", 6379), ("b", 7)]
    watched = parse_redis_url("rediss+sentinel://:s@a,b:7/shop/3?sentinel_password=t")
    assert (watched.mode, watched.nodes, watched.master) == (RedisMode.SENTINEL, [("a", 26379), ("b", 7)], "shop")
    assert (watched.database, watched.login, watched.sentinel_login) == (3, (None, "s"), (None, "t"))
    assert watched.text == "rediss+sentinel://a,b:7/shop/3"
    assert parse_redis_url("redis+cluster://a,[::1]:3").nodes == [("a", 6379), ("::1", 3)]
    found = parse_redis_url("unix:///run/r.sock?db=3")
    assert (found.socket, found.database, found.nodes) == ("/run/r.sock", 3, [])
    assert parse_redis_url("rediss://h?ca=/nowhere").files == {"ca": "/nowhere"}
    assert parse_redis_url("redis://h/1?stream=s", extra=["stream"]).extra == {"stream": "s"}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://host/", "http://host/ is not the address of a Redis server: write redis://host:6379/0"),
        ("redis://h:0x1/0", "'h:0x1' is not a host; write HOST or HOST:PORT"),
        ("redis+sentinel://:secret@a,b", "name the master that the Sentinels watch: redis.sentinel://a,b/NAME"),
        ("redis+sentinel://a/shop/x", "/x is not a database; write a number"),
        ("redis://host/9999999999", "is not a database; write a number"),
        ("redis+cluster://a,b/1", "a cluster has only one database; leave out /1"),
        ("redis://a,b", "'a,b' is not a host; write HOST or HOST:PORT .several with redis.cluster"),
        ("redis://host:99999", "is not a host"),
        ("redis://a..b:6379/0", "'a..b:6379' is not a host"),
        (f"redis://{'a' * 64}/0", "is not a host"),
        ("rediss://host?key=me.key", "key= needs a certificate: add cert=FILE"),
        ("redis://:secret@", "'' is not a host"),
        ("unix://", "names no socket; write unix:///run/redis/redis.sock"),
        ("redis://:secret@host?ca=x", "unknown option 'ca'; this URL takes no options"),
        ("rediss://host?password=secret", "unknown option 'password'; write ca=, cert=, key= only"),
        ("redis://[::1", "not the address of a Redis server"),
        ("127.0.0.1:6379", "^127.0.0.1:6379 is not the address of a Redis server"),
        ("http://me:secret@host/?secret", "^host/ is not the address of a Redis server"),
        ("redis://:a/secret@host/0", "write %2F for /"),
        ("redis://:a?secret@host/0", "%3F for [?]"),
        ("redis://:a#secret@host/0", "%23 for #"),
    ],
)
def test_invalid_urls_are_refused_without_their_secrets(url, message):
    with pytest.raises(UsageError, match=message) as caught:
        parse_redis_url(url)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)
