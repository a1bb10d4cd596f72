"""Bencode: what is taken and refused, and that only one error leaves."""

from __future__ import annotations

import pytest

from lycosa.dht.core.bencode import BencodeError, decode, decode_prefix, decode_with_span, encode

EVERYTHING = {b"": [], b"a": {b"b": 1, b"c": [-1, b"x", {}]}, b"z": b"\x00\xff"}


def test_a_value_is_read_as_it_was_written():
    assert decode(encode(EVERYTHING)) == EVERYTHING
    assert encode(EVERYTHING) == b"d0:le1:ad1:bi1e1:cli-1e1:xdeee1:z2:\x00\xffe"


def test_keys_are_sorted_as_bytes():
    assert encode({b"b": 1, b"a": 2, b"B": 3, b"aa": 4}) == b"d1:Bi3e1:ai2e2:aai4e1:bi1ee"


@pytest.mark.parametrize("value", [None, "text", 1.0, True, {"a": 1}, [None], {b"a": {1: 2}}])
def test_other_types_are_not_encoded(value: object):
    with pytest.raises(TypeError):
        encode(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"i",
        b"ie",
        b"i1",
        b"i-e",
        b"i--1e",
        b"i1.0e",
        b"i 1e",
        b"i1_0e",
        b"i+1e",
        b"l",
        b"d",
        b"le1",
        b"d1:ae",
        b"di1ei2ee",
        b"dlei2ee",
        b"3:ab",
        b"-1:a",
        b"1",
        b"1a:a",
        b":",
        b"1 :a",
        b"x",
        b"e",
        b"i" + b"9" * 21 + b"e",
        b"99999999999:a",
        b"9999999999:a",
        b"l" * 101 + b"e" * 101,
    ],
)
def test_no_mode_takes_what_is_not_bencode(data: bytes):
    for strict in (True, False):
        with pytest.raises(BencodeError):
            decode(data, strict=strict)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"i-0e", 0),
        (b"i007e", 7),
        (b"002:ab", b"ab"),
        (b"d1:bi1e1:ai2ee", {b"a": 2, b"b": 1}),
        (b"d1:ai1e1:ai2ee", {b"a": 1}),
    ],
)
def test_only_the_lenient_mode_takes_other_encodings_of_a_value(data: bytes, value: object):
    assert decode(data, strict=False) == value
    with pytest.raises(BencodeError):
        decode(data)


def test_limits_are_exact():
    assert decode(b"l" * 3 + b"e" * 3, max_depth=3)
    with pytest.raises(BencodeError, match="deeply"):
        decode(b"l" * 4 + b"e" * 4, max_depth=3)
    assert decode(b"d1:ai1ee", max_tokens=3)
    with pytest.raises(BencodeError, match="many"):
        decode(b"d1:ai1ee", max_tokens=2)
    assert decode(b"i-123e", max_digits=3) == -123
    with pytest.raises(BencodeError, match="digits"):
        decode(b"i1234e", max_digits=3)


def test_the_bytes_after_a_value_are_left():
    assert decode_prefix(b"d5:piecei0eepayload") == ({b"piece": 0}, 12)


def test_the_span_of_a_key_is_as_it_was_sent():
    data = b"d1:ad4:info1:xe4:infod1:bi1e1:ai02eee"
    assert decode_with_span(data, b"info", strict=False) == (
        {b"a": {b"info": b"x"}, b"info": {b"b": 1, b"a": 2}},
        b"d1:bi1e1:ai02ee",
    )
    assert decode_with_span(b"d1:ai1ee", b"info") == ({b"a": 1}, None)
    with pytest.raises(BencodeError):
        decode_with_span(b"le", b"info")
