"""Our bencode and that of libtorrent: the same bytes for every value, the same verdict on any bytes.

Intended differences, all of them on input that no node needs:
- libtorrent reads an integer beyond 64 bits (and -2^63) as 0. We read it as it is, up to 20 digits.
- Of a repeated key, the Python binding of libtorrent keeps the last value. We keep the first, as the lookups of
  libtorrent itself do.
- libtorrent takes 99 nested lists. Our limit is an argument.
- We take at most 10 digits, leading zeros included, for the length of a string, and libtorrent takes any number.
- `decode` refuses bytes after the value, and libtorrent ignores them: so `decode_prefix` is compared.
"""

from __future__ import annotations

import random

import pytest

from lycosa.dht.core.bencode import BencodeError, Value, decode, decode_prefix, encode
from tests.conftest import PROVE

libtorrent = pytest.importorskip("libtorrent", reason="needs libtorrent: pip install 'lycosa[dev]'")

ROUNDS = 100_000 if PROVE else 10_000
ALPHABET = b"0123456789-:delix +"


def any_value(chance: random.Random, depth: int = 0) -> Value:
    kind = chance.random()
    if kind < 0.35 or depth > 3:
        return chance.choice([0, 1, -1, chance.randrange(1000), chance.randrange(-(2**63) + 1, 2**63)])
    if kind < 0.7:
        return chance.randbytes(chance.choice([0, 1, 2, 9, 10, 99, 100]))
    if kind < 0.85:
        return [any_value(chance, depth + 1) for _ in range(chance.randrange(4))]
    keys = (chance.choice([b"a", b"b", b"id", chance.randbytes(2)]) for _ in range(chance.randrange(4)))
    return {key: any_value(chance, depth + 1) for key in keys}


def damaged(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randrange(1, 4)):
        at, kind = chance.randrange(len(changed) + 1), chance.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([chance.choice(ALPHABET)])
        elif kind == 1:
            changed[at:at] = bytes([chance.choice(ALPHABET)])
        elif kind == 2:
            del changed[at : at + 1]
        else:
            del changed[at:]
    return bytes(changed)


def theirs(data: bytes) -> Value | type[BencodeError]:
    try:
        return libtorrent.bdecode(data)
    except RuntimeError:
        return BencodeError


def ours(data: bytes) -> Value | type[BencodeError]:
    try:
        return decode_prefix(data, strict=False, max_depth=99)[0]
    except BencodeError:
        return BencodeError


def as_64_bits(value: object) -> object:
    """Return a value as libtorrent reads it."""
    if isinstance(value, int):
        return value if -(2**63) < value < 2**63 else 0
    if isinstance(value, list):
        return [as_64_bits(each) for each in value]
    return {key: as_64_bits(each) for key, each in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("seed", range(2))
def test_both_write_the_same_bytes_and_read_each_other(seed: int):
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(ROUNDS // 2):
        value = any_value(chance)
        data = encode(value)
        assert libtorrent.bencode(value) == data
        assert libtorrent.bdecode(data) == value == decode(data)


@pytest.mark.parametrize("seed", range(2))
def test_both_take_and_refuse_the_same_damaged_bytes(seed: int):
    print("seed", seed)
    chance = random.Random(seed)
    taken = 0
    for _ in range(ROUNDS):
        data = damaged(encode(any_value(chance)), chance)
        found = ours(data)
        if found is not BencodeError:
            taken += 1
        if not has_odd_keys(data):
            assert as_64_bits(found) == theirs(data), data
    assert ROUNDS / 20 < taken < ROUNDS / 2


def has_odd_keys(data: bytes) -> bool:
    """Return whether keys are out of order or repeated. The two decoders take different values of a repeated key."""
    try:
        decode_prefix(data)
    except BencodeError as error:
        return "keys" in str(error)
    return False


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"i-0e", b"i007e", b"i+1e", b"i 1e", b"ie", b"i-e", b"002:ab", b"1", b"1:", b"0:", b"0:x"),
        *(b"di1ei2ee", b"dlei1ee", b"d1:ae", b"d1:bi1e1:ai2ee", b"l" * 99 + b"e" * 99, b"l" * 100 + b"e" * 100),
    ],
)
def test_both_agree_on_corner_cases(data: bytes):
    assert ours(data) == theirs(data)


def test_the_intended_differences_exist():
    assert (ours(b"i9223372036854775808e"), theirs(b"i9223372036854775808e")) == (2**63, 0)
    assert (ours(b"i-9223372036854775808e"), theirs(b"i-9223372036854775808e")) == (-(2**63), 0)
    assert (ours(b"d1:ai1e1:ai2ee"), theirs(b"d1:ai1e1:ai2ee")) == ({b"a": 1}, {b"a": 2})
    assert (ours(b"00000000002:ab"), theirs(b"00000000002:ab")) == (BencodeError, b"ab")
    with pytest.raises(BencodeError):
        decode(b"0:x")
