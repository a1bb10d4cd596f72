"""Bencode, the encoding of KRPC messages, extension messages and torrent files (BEP 3).

Depth, number of values and digits are limited, so `decode` raises only `BencodeError`, whatever the bytes. Strict
decoding accepts only what `encode` writes, so encoding the value again gives the same bytes and hash. Lenient decoding
also accepts what real nodes send: unsorted or repeated keys (the first counts), leading zeros, `-0`.
"""

from __future__ import annotations

from typing import TypeAlias, Union

from lycosa.core.errors import LycosaError

Value: TypeAlias = Union[int, bytes, "list[Value]", "dict[bytes, Value]"]

DEPTH_MAX = 100
"""Maximum depth of nested lists and dicts. libtorrent: 100 for torrent files, 10 for KRPC."""
TOKENS_MAX = 2_000_000
"""Maximum number of values, keys included. libtorrent: 3,000,000 for torrent files, 500 for KRPC."""
DIGITS_MAX = 20
"""Maximum number of digits of an integer, without the sign: enough for 64 bits."""
LENGTH_DIGITS_MAX = 10
"""Maximum number of digits in the length of a string, leading zeros included: enough for 10 GB."""


class BencodeError(LycosaError):
    """The bytes are not bencode, or exceed a limit."""


def decode(
    data: bytes,
    *,
    strict: bool = True,
    max_depth: int = DEPTH_MAX,
    max_tokens: int = TOKENS_MAX,
    max_digits: int = DIGITS_MAX,
) -> Value:
    """Return the value that `data` encodes. Raises `BencodeError`, also if more bytes follow."""
    value, end, _ = _scan(data, 0, strict, max_depth, max_tokens, max_digits)
    if end != len(data):
        raise BencodeError(f"{len(data) - end} bytes follow the value")
    return value


def decode_prefix(
    data: bytes,
    *,
    strict: bool = True,
    max_depth: int = DEPTH_MAX,
    max_tokens: int = TOKENS_MAX,
    max_digits: int = DIGITS_MAX,
) -> tuple[Value, int]:
    """Return the value at the start of `data`, and the length of its encoding."""
    value, end, _ = _scan(data, 0, strict, max_depth, max_tokens, max_digits)
    return value, end


def decode_with_span(
    data: bytes,
    key: bytes,
    *,
    strict: bool = True,
    max_depth: int = DEPTH_MAX,
    max_tokens: int = TOKENS_MAX,
    max_digits: int = DIGITS_MAX,
) -> tuple[dict[bytes, Value], bytes | None]:
    """Return the dict that `data` encodes, and the encoded value of `key`; None if the dict does not have it.

    The infohash is the hash of the encoded value of `info`.
    """
    if data[:1] != b"d" or max_depth < 1:
        raise BencodeError("not a dictionary")
    at, tokens, items, span = 1, 1, [], None
    while data[at : at + 1] != b"e":
        # A depth of 0 and integers of 0 digits leave only strings, so any other key is refused.
        name, at, _ = _scan(data, at, strict, 0, max_tokens - tokens, 0)
        value, end, used = _scan(data, at, strict, max_depth - 1, max_tokens - tokens - 1, max_digits)
        if name == key and span is None:
            span = data[at:end]
        items += [name, value]
        at, tokens = end, tokens + used + 1
    if at + 1 != len(data):
        raise BencodeError(f"{len(data) - at - 1} bytes follow the value")
    return _dict(items, strict), span


def encode(value: Value) -> bytes:
    """Return the strict encoding of a value. Raises `TypeError` for a value that is not a `Value`."""
    parts: list[bytes] = []
    _encode(value, parts)
    return b"".join(parts)


def _encode(value: Value, parts: list[bytes]) -> None:
    if isinstance(value, bytes):
        parts.append(b"%d:%b" % (len(value), value))
    elif isinstance(value, bool):
        raise TypeError("bencode has no booleans: write 0 or 1")
    elif isinstance(value, int):
        parts.append(b"i%de" % value)
    elif isinstance(value, list | tuple):
        parts.append(b"l")
        for each in value:
            _encode(each, parts)
        parts.append(b"e")
    elif isinstance(value, dict):
        parts.append(b"d")
        for key in sorted(value):
            if not isinstance(key, bytes):
                raise TypeError(f"{key!r}: the keys of a dictionary must be bytes")
            parts.append(b"%d:%b" % (len(key), key))
            _encode(value[key], parts)
        parts.append(b"e")
    else:
        raise TypeError(f"{type(value).__name__} cannot be encoded: write bytes, int, list or dict")


def _scan(
    data: bytes, at: int, strict: bool, max_depth: int, max_tokens: int, max_digits: int
) -> tuple[Value, int, int]:
    """Return the value at offset `at`, the offset of its end, and the number of values in it.

    Optimized for KRPC messages: strings of up to 99 bytes are read without a call.
    """
    items: list[Value] = []
    in_dict = False
    outer: list[tuple[list[Value], bool]] = []
    try:
        for tokens in range(1, max_tokens + 1):
            byte = data[at]
            if 48 <= byte <= 57:
                if data[at + 1] == 58:
                    start, at = at + 2, at + byte - 46
                elif byte != 48 and data[at + 2] == 58 and 48 <= data[at + 1] <= 57:
                    start, at = at + 3, at + 10 * byte + data[at + 1] - 525
                else:
                    start, at = _string(data, at, strict)
                items.append(data[start:at])
            elif in_dict and not len(items) & 1:
                raise BencodeError(f"byte {at}: the key of a dictionary must be a string")
            elif byte == 105:
                number, at = _integer(data, at + 1, strict, max_digits)
                items.append(number)
            elif byte in b"dl":
                if len(outer) == max_depth:
                    raise BencodeError("nested too deeply")
                outer.append((items, in_dict))
                items, in_dict, at = [], byte == 100, at + 1
            else:
                raise BencodeError(f"byte {at}: no value begins with {byte:#04x}")
            while outer and data[at] == 101:
                value: Value = _dict(items, strict) if in_dict else items
                items, in_dict = outer.pop()
                items.append(value)
                at += 1
            if not outer and at <= len(data):
                return items[0], at, tokens
    except IndexError:
        raise BencodeError("ends too early") from None
    raise BencodeError("too many values")


def _string(data: bytes, at: int, strict: bool) -> tuple[int, int]:
    colon = data.find(b":", at, at + LENGTH_DIGITS_MAX + 1)
    digits = data[at:colon]
    if colon < 0 or not digits.isdigit():
        raise BencodeError(f"byte {at}: not the length of a string")
    if strict and digits[0] == 48 and len(digits) > 1:
        raise BencodeError(f"byte {at}: a length with a leading zero")
    return colon + 1, colon + 1 + int(digits)


def _integer(data: bytes, at: int, strict: bool, max_digits: int) -> tuple[int, int]:
    end = data.find(b"e", at, at + max_digits + 2)
    text = data[at:end]
    digits = text[1:] if text[:1] == b"-" else text
    if end < 0 or not digits.isdigit() or len(digits) > max_digits:
        raise BencodeError(f"byte {at}: not an integer of at most {max_digits} digits")
    if strict and digits[0] == 48 and text != b"0":
        raise BencodeError(f"byte {at}: an integer with a leading zero, or -0")
    return int(text), end + 1


def _dict(items: list[Value], strict: bool) -> dict[bytes, Value]:
    if len(items) & 1:
        raise BencodeError("a key without a value")
    keys: list[bytes] = items[::2]  # type: ignore[assignment]
    found = dict(zip(keys, items[1::2], strict=True))
    if strict:
        if len(found) != len(keys) or sorted(keys) != keys:
            raise BencodeError("keys out of order, or repeated")
    elif len(found) != len(keys):
        found = dict(zip(reversed(keys), reversed(items[1::2]), strict=True))
    return found
