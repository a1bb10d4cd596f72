"""Bencode, the encoding of KRPC messages, extension messages and torrent files (BEP 3).

`decode` raises `BencodeError` and nothing else, whatever the bytes are: depth, number of values and digits are bounded.
Strict decoding takes exactly what `encode` writes, so the hash of a strictly decoded value can be trusted. Lenient
decoding also takes what live nodes send: unsorted or repeated keys (the first one counts), leading zeros and `-0`.
"""

from __future__ import annotations

from typing import TypeAlias, Union

from lycosa.core.errors import LycosaError

Value: TypeAlias = Union[int, bytes, "list[Value]", "dict[bytes, Value]"]

DEPTH_MAX = 100
"""Nested lists and dicts. libtorrent: 100 for torrent files, 10 for KRPC."""
TOKENS_MAX = 2_000_000
"""Values, keys included. libtorrent: 3,000,000 for torrent files, 500 for KRPC."""
DIGITS_MAX = 20
"""Digits of an integer, sign not counted: all of 64 bits. libtorrent: 64 bits, signed."""
LENGTH_DIGITS_MAX = 10
"""Digits of the length of a string, leading zeros included: 10 GB."""


class BencodeError(LycosaError):
    """Not bencode, or beyond a limit."""


def decode(
    data: bytes,
    *,
    strict: bool = True,
    max_depth: int = DEPTH_MAX,
    max_tokens: int = TOKENS_MAX,
    max_digits: int = DIGITS_MAX,
) -> Value:
    """Return the one value that all of `data` encodes."""
    value, end = decode_prefix(data, strict=strict, max_depth=max_depth, max_tokens=max_tokens, max_digits=max_digits)
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
    """Return the value at the start of `data`, and where it ends. In a metadata message the piece follows (BEP 9)."""
    return _Decoder(strict, max_depth, max_tokens, max_digits, None).decode(data)


def decode_with_span(
    data: bytes,
    key: bytes,
    *,
    strict: bool = True,
    max_depth: int = DEPTH_MAX,
    max_tokens: int = TOKENS_MAX,
    max_digits: int = DIGITS_MAX,
) -> tuple[dict[bytes, Value], bytes | None]:
    """Return a dict, and the bytes of its value under `key` as they stand in `data`; None without this key.

    The infohash is the hash of these bytes: decoding and encoding again could change them.
    """
    decoder = _Decoder(strict, max_depth, max_tokens, max_digits, key)
    value, end = decoder.decode(data)
    if not isinstance(value, dict):
        raise BencodeError("not a dictionary")
    if end != len(data):
        raise BencodeError(f"{len(data) - end} bytes follow the value")
    start, end = decoder.span
    return value, data[start:end] if end else None


def encode(value: Value) -> bytes:
    """Return the one strict encoding of a value: keys sorted. Raises TypeError for a value of another type."""
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
                raise TypeError(f"{key!r}: the keys of a dictionary are bytes")
            parts.append(b"%d:%b" % (len(key), key))
            _encode(value[key], parts)
        parts.append(b"e")
    else:
        raise TypeError(f"{type(value).__name__} cannot be encoded: bytes, int, list or dict can")


class _Decoder:
    """One decoding. The bounds are counted down, so that no input costs more than they allow."""

    def __init__(self, strict: bool, max_depth: int, max_tokens: int, max_digits: int, key: bytes | None) -> None:
        self._strict = strict
        self._depth_left = max_depth
        self._tokens_left = max_tokens
        self._digits_max = max_digits
        self._key = key
        self.span = (0, 0)
        """Start and end of the value under the key in the outermost dict."""

    def decode(self, data: bytes) -> tuple[Value, int]:
        self._data = data
        try:
            return self._value(0)
        except IndexError:
            raise BencodeError("ends too early") from None

    def _value(self, at: int) -> tuple[Value, int]:
        self._tokens_left -= 1
        if self._tokens_left < 0:
            raise BencodeError("too many values")
        byte = self._data[at]
        if 48 <= byte <= 57:
            return self._string(at)
        if byte == 105:
            return self._integer(at + 1)
        if byte not in {100, 108}:
            raise BencodeError(f"byte {at}: no value begins with {byte:#04x}")
        self._depth_left -= 1
        if self._depth_left < 0:
            raise BencodeError("nested too deeply")
        found: tuple[Value, int] = self._dict(at + 1) if byte == 100 else self._list(at + 1)
        self._depth_left += 1
        return found

    def _string(self, at: int) -> tuple[bytes, int]:
        colon = self._data.find(b":", at, at + LENGTH_DIGITS_MAX + 1)
        digits = self._data[at:colon]
        if colon < 0 or not digits.isdigit():
            raise BencodeError(f"byte {at}: not the length of a string")
        if self._strict and digits[0] == 48 and len(digits) > 1:
            raise BencodeError(f"byte {at}: a length with a leading zero")
        start, end = colon + 1, colon + 1 + int(digits)
        if end > len(self._data):
            raise BencodeError("ends too early")
        return self._data[start:end], end

    def _integer(self, at: int) -> tuple[int, int]:
        end = self._data.find(b"e", at, at + self._digits_max + 2)
        text = self._data[at:end]
        digits = text[1:] if text[:1] == b"-" else text
        if end < 0 or not digits.isdigit() or len(digits) > self._digits_max:
            raise BencodeError(f"byte {at}: not an integer of at most {self._digits_max} digits")
        if self._strict and digits[0] == 48 and text != b"0":
            raise BencodeError(f"byte {at}: an integer with a leading zero, or -0")
        return int(text), end + 1

    def _list(self, at: int) -> tuple[list[Value], int]:
        values: list[Value] = []
        while self._data[at] != 101:
            value, at = self._value(at)
            values.append(value)
        return values, at + 1

    def _dict(self, at: int) -> tuple[dict[bytes, Value], int]:
        outermost = at == 1
        values: dict[bytes, Value] = {}
        last = None
        while self._data[at] != 101:
            if not 48 <= self._data[at] <= 57:
                raise BencodeError(f"byte {at}: the key of a dictionary is a string")
            self._tokens_left -= 1
            key, start = self._string(at)
            if self._strict and last is not None and key <= last:
                raise BencodeError(f"byte {at}: a key out of order, or repeated")
            last = key
            value, at = self._value(start)
            if key not in values:
                values[key] = value
                if outermost and key == self._key:
                    self.span = (start, at)
        return values, at + 1
