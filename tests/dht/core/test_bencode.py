"""Bencode: what is accepted and what is refused, always with the same error."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lycosa.dht.core.bencode import BencodeError, Value, decode, decode_prefix, decode_with_span, encode

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
def test_neither_mode_accepts_invalid_bencode(data: bytes):
    for strict in (True, False):
        with pytest.raises(BencodeError):
            decode(data, strict=strict)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"i-0e", 0),
        (b"i007e", 7),
        (b"02:ab", b"ab"),
        (b"002:ab", b"ab"),
        (b"d1:bi1e1:ai2ee", {b"a": 2, b"b": 1}),
        (b"d1:ai1e1:ai2ee", {b"a": 1}),
    ],
)
def test_only_the_lenient_mode_accepts_other_encodings_of_a_value(data: bytes, value: object):
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


def test_limits_count_all_values_when_one_span_is_asked_for():
    data = b"d1:ali1ei2ee1:b0:e"
    assert decode_with_span(data, b"a", max_tokens=7, max_depth=2)[1] == b"li1ei2ee"
    for limits in ({"max_tokens": 6}, {"max_tokens": 4}, {"max_depth": 1}):
        with pytest.raises(BencodeError):
            decode_with_span(data, b"a", **limits)


def test_a_truncated_string_is_not_a_valid_prefix():
    for data in (b"3:ab", b"10:", b"l3:ab", b"d1:a3:ab"):
        with pytest.raises(BencodeError, match="early"):
            decode_prefix(data)


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


VALUES = st.recursive(
    st.integers(-(10**20) + 1, 10**20 - 1) | st.binary(max_size=120),
    lambda values: st.lists(values, max_size=5) | st.dictionaries(st.binary(max_size=3), values, max_size=5),
)
NEARLY_BENCODE = st.lists(
    st.sampled_from(
        [b"d", b"l", b"e", b"i", b"1:a", b"1:b", b"0:", b"01:a", b"i0e", b"i-0e", b"i07e", b"2:", b"-", b"9"]
    )
    | VALUES.map(encode)
).map(b"".join)


@given(VALUES)
def test_every_value_is_read_as_it_was_written(value: Value):
    data = encode(value)
    assert decode(data) == decode(data, strict=False) == value
    assert decode_prefix(data + b"e") == (value, len(data))


@given(st.binary() | NEARLY_BENCODE)
@example(b"1")
@example(b"l1:")
def test_only_bencode_errors_are_raised_and_strict_encodings_are_unique(data: bytes):
    lenient: object = BencodeError
    with suppress(BencodeError):
        lenient = decode(data, strict=False)
    with suppress(BencodeError):
        value = decode(data)
        assert value == lenient
        assert encode(value) == data


@given(st.dictionaries(st.binary(max_size=3), VALUES, max_size=5), st.data())
def test_the_span_of_every_key_encodes_its_value(value: dict[bytes, Value], data: st.DataObject):
    written = encode(value)
    key = data.draw(st.sampled_from([*value, b"none"]))
    found, span = decode_with_span(written, key)
    assert found == value
    assert span == (encode(value[key]) if key in value else None)


@given(st.binary().map(lambda data: b"d" + data) | NEARLY_BENCODE, st.booleans())
def test_decoding_with_a_span_accepts_the_same_values(data: bytes, strict: bool):
    outcomes: list[object] = []
    for read in (lambda: decode(data, strict=strict), lambda: decode_with_span(data, b"a", strict=strict)[0]):
        try:
            outcomes.append(read())
        except BencodeError:
            outcomes.append(BencodeError)
    assert outcomes[0] == outcomes[1] or not data.startswith(b"d")


@given(st.binary(max_size=40) | NEARLY_BENCODE, st.integers(0, 4), st.integers(0, 6), st.integers(1, 3))
def test_small_limits_hold_for_spans_too(data: bytes, depth: int, tokens: int, digits: int):
    with suppress(BencodeError):
        value = decode(data, strict=False, max_depth=depth, max_tokens=tokens, max_digits=digits)
        assert decode(data, strict=False) == value
        assert size_of(value) <= tokens
        if data.startswith(b"d"):
            limits = {"max_depth": depth, "max_tokens": tokens, "max_digits": digits}
            assert decode_with_span(data, b"a", strict=False, **limits)[0] == value  # type: ignore[arg-type]


def size_of(value: Value) -> int:
    """Return how many values there are, keys included."""
    if isinstance(value, dict):
        return 1 + sum(1 + size_of(each) for each in value.values())
    return 1 + sum(map(size_of, value)) if isinstance(value, list) else 1
