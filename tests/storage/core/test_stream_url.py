"""URLs of streams, parsed or refused (C3, C8)."""

from __future__ import annotations

import pytest

from lycosa.core import redis_url
from lycosa.core.errors import UsageError
from lycosa.storage.core.stream_url import is_address, read_address


def test_a_url_with_all_options():
    found = read_address("rediss://me:p%40ss@host:7000/3?stream=items&maxlen=1000&ca=a.pem")
    server = redis_url.parse_redis_url("rediss://me:p%40ss@host:7000/3?ca=a.pem")
    assert found.server._replace(extra={}) == server
    assert found[:1] + found[2:] == ("rediss://host:7000/3?stream=items", "items", 1000)


@pytest.mark.parametrize(
    ("address", "text"),
    [
        ("redis://host?stream=items", "redis://host?stream=items"),
        ("redis+cluster://:secret@a:1,b?stream=a%20b&maxlen=7", "redis+cluster://a:1,b?stream=a b"),
        ("redis+sentinel://:secret@a,b/shop/2?stream=s", "redis+sentinel://a,b/shop/2?stream=s"),
        ("unix://:secret@/run/r.sock?stream=s", "unix:///run/r.sock?stream=s"),
        ("unix:///run/r.sock?db=3&stream=s", "unix:///run/r.sock?db=3&stream=s"),
    ],
)
def test_the_text_of_a_url_has_no_secrets(address, text):
    assert read_address(address).text == text


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("http://:secret@host/x", "http://host/x: items go to a file, or to a stream in Redis: redis://HOST:6379/0?"),
        ("file:///items.jsonl", "file:///items.jsonl: items go to a file"),
        ("redis://:secret@host/0", "redis://host/0: name the stream, redis://host/0?stream=NAME"),
        ("redis://host/0?stream=", "name the stream"),
        ("redis://host/0?stream={a}", "no braces"),
        ("redis://host/0?stream=a%0Ab", "name the stream"),
        ("redis://host/0?stream=" + "a" * 201, "at most 200 characters"),
        ("redis://host/0?queue=a", "unknown option 'queue'; write stream=, maxlen= only"),
        ("redis://host/items", "/items is not a database; write a number (a stream: redis://HOST:6379/0?stream=NAME)"),
        ("redis://:secret@[host?stream=a", "not the address of a Redis server"),
        ("redis://host?stream=a&maxlen=0", "maxlen=0 is not a valid number of entries; write maxlen=1000000"),
        ("redis://host?stream=a&maxlen=", "maxlen= is not a valid number"),
        ("redis://host?stream=a&maxlen=10k", "maxlen=10k is not a valid number"),
        ("redis://host?stream=a&maxlen=" + "9" * 5000, "is not a valid number"),
    ],
)
def test_invalid_urls_are_refused_without_secrets(address, message):
    with pytest.raises(UsageError) as caught:
        read_address(address)
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("output", "expected"), [("redis://a", True), ("items.jsonl", False), (None, False), ("c:/x.jsonl", False)]
)
def test_redis_urls_are_distinguished_from_files(output, expected):
    assert is_address(output) is expected


def test_a_stream_name_that_is_reserved_for_crawls_is_refused():
    with pytest.raises(UsageError, match="names that begin with lycosa: are reserved for crawls"):
        read_address("redis://127.0.0.1/0?stream=lycosa:crawls")
