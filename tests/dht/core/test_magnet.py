"""Magnet URIs and infohashes that users paste."""

from __future__ import annotations

import base64
import hashlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lycosa.core.errors import BadMagnet
from lycosa.dht.core.endpoints import pack
from lycosa.dht.core.magnet import PEERS_MAX, TEXT_MAX, Magnet, parse_infohash, parse_magnet

V1, V2 = bytes(range(20)), bytes(range(32))
BTIH = f"magnet:?xt=urn:btih:{V1.hex()}"


@pytest.mark.parametrize(
    "written", [V1.hex(), V1.hex().upper(), base64.b32encode(V1).decode(), base64.b32encode(V1).decode().lower()]
)
def test_an_infohash_is_hexadecimal_or_base32(written):
    assert parse_infohash(written) == V1
    assert parse_magnet(f"magnet:?xt=urn:btih:{written}") == Magnet(V1, None)
    assert parse_magnet(f" {written}\n") == Magnet(V1, None)


@pytest.mark.parametrize("written", [V2.hex(), f"1220{V2.hex()}"])
def test_an_infohash_of_version_2_has_32_bytes(written):
    assert parse_magnet(written) == Magnet(None, V2)
    assert parse_magnet(f"magnet:?xt=urn:btmh:{written}") == Magnet(None, V2)


def test_a_hybrid_torrent_has_two_infohashes():
    magnet = parse_magnet(f"{BTIH}&xt=urn:btmh:1220{V2.hex()}")
    assert magnet.infohashes == (V1, V2)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (f"{BTIH}&xt=urn:btmh:1220", Magnet(V1, None)),
        (f"{BTIH}&xt=urn:btmh:1114{V1.hex()}", Magnet(V1, None)),
        (f"{BTIH}&xt=urn:btih:{V1.hex()[1:]}", Magnet(V1, None)),
        (f"magnet:?xt=urn:btih:zz&xt=urn:btmh:1220{V2.hex()}", Magnet(None, V2)),
    ],
)
def test_an_unreadable_infohash_beside_a_good_one_is_ignored(written, expected):
    assert parse_magnet(written) == expected


def test_metadata_must_have_all_infohashes_of_the_link():
    metadata = b"d4:name1:ae"
    v1, v2 = hashlib.sha1(metadata).digest(), hashlib.sha256(metadata).digest()
    for magnet in (Magnet(v1, None), Magnet(None, v2), Magnet(v1, v2), Magnet(v2[:20], None)):
        assert magnet.names(metadata)
    for magnet in (Magnet(V1, None), Magnet(None, V2), Magnet(v1, V2), Magnet(V1, v2)):
        assert not magnet.names(metadata)


def test_name_and_peers_are_read_and_trackers_are_not():
    peers = "&x.pe=192.0.2.1:6881&x.pe=[2001:db8::1]:6882&x.pe=peer.example:6881&x.pe=1.2.3.4:99999&x.pe=1.2.3.4"
    magnet = parse_magnet(f"{BTIH}&dn=Some+name%20here&tr=udp%3A%2F%2Ftracker.example%3A80{peers}")
    assert magnet.name == "Some name here"
    assert magnet.peers == (pack("192.0.2.1", 6881), pack("2001:db8::1", 6882))


def test_numbered_topics_and_capitals_are_read():
    assert parse_magnet(f"MAGNET:?xt.1=URN:BTIH:{V1.hex()}").infohash_v1 == V1


def test_peers_are_bounded():
    assert len(parse_magnet(BTIH + "&x.pe=192.0.2.1:6881" * 1000).peers) == PEERS_MAX


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("magnet:?dn=name", "no infohash"),
        ("https://example.org/", "not an infohash"),
        ("", "not an infohash"),
        (f"magnet:?xt=urn:btih:{V1.hex()[1:]}", "not an infohash"),
        (f"magnet:?xt=urn:btih:{V2.hex()}", "exactly one infohash of 20 bytes"),
        (f"magnet:?xt=urn:btmh:{V1.hex()}", "exactly one infohash of 32 bytes"),
        (f"{BTIH}&xt=urn:btih:{bytes(20).hex()}", "exactly one infohash"),
        ("x" * (TEXT_MAX + 1), "longer than"),
    ],
)
def test_the_error_for_an_invalid_link_is_one_short_line(written, message):
    with pytest.raises(BadMagnet, match=message) as error:
        parse_magnet(written)
    assert len(str(error.value)) < 200
    assert "\n" not in str(error.value)


@given(st.text(max_size=100))
def test_any_text_is_parsed_or_raises_bad_magnet(text):
    for written in (text, f"magnet:?{text}", f"{BTIH}&{text}", f"magnet:?xt=urn:btih:{text}", f"{BTIH}&x.pe={text}"):
        with suppress(BadMagnet):
            parse_magnet(written)
