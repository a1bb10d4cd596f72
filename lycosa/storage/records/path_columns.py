"""Encodes the paths of a torrent in columns, which zstd compresses better.

A path is encoded as the lengths of the beginning and the end that it shares with the previous path, and the middle. A
number that is one more than the number at the same place in the previous path is written as NEXT. So the paths of a
hundred episodes take little more space than the titles. Paths must not contain NEXT or line ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

NEXT = b"\x01"
LINE = b"\n"
SHARED_MAX = 255
"""Maximum length of a shared beginning or end: one byte holds it."""
SHARED_MIN = 4
"""Minimum length of a shared beginning or end: writing the length of a shorter one would not save space."""
_NUMBERS = re.compile(rb"[0-9]{1,9}")
_SLOTS = re.compile(rb"[0-9]{1,9}|\x01")


def to_columns(paths: list[bytes]) -> bytes:
    """Return the paths in columns: the lengths of the shared beginnings, the lengths of the shared ends, and the
    middles."""
    starts, ends, middles = bytearray(), bytearray(), []
    last_template, last_numbers = b"", list[bytes]()
    start = end = 0
    for path in paths:
        numbers = _NUMBERS.findall(path)
        template = _template(path, numbers, last_numbers)
        start = _shared(template, last_template, start)
        end = _shared(template[start:][::-1], last_template[start:][::-1], end)
        starts.append(start)
        ends.append(end)
        middles.append(template[start : len(template) - end])
        last_template, last_numbers = template, numbers
    return bytes(starts) + bytes(ends) + LINE.join(middles)


def from_columns(columns: bytes, count: int) -> Iterator[bytes]:
    """Yield the `count` paths in these columns."""
    starts, ends, middles = columns[:count], columns[count : 2 * count], columns[2 * count :].split(LINE)
    template = path = b""
    for start, end, middle in zip(starts, ends, middles if count else [], strict=True):
        template = template[:start] + middle + template[len(template) - end :]
        if NEXT in template:
            following = iter(_NUMBERS.findall(path))
            path = _SLOTS.sub(lambda slot, last=following: _filled(slot[0], next(last, b"")), template)  # type: ignore[misc]
        else:
            path = template
        yield path


def _template(path: bytes, numbers: list[bytes], last: list[bytes]) -> bytes:
    """Return the path with NEXT for each number that is one more than the number at the same place in the last path."""
    if not any(map(_is_next, numbers, last)):
        return path
    before = iter(last)
    return _NUMBERS.sub(lambda number: NEXT if _is_next(number[0], next(before, b"")) else number[0], path)


def _is_next(number: bytes, last: bytes) -> bool:
    return bool(last) and (number[-1] - last[-1]) % 10 == 1 and number == _following(last)


def _filled(slot: bytes, last: bytes) -> bytes:
    return _following(last) if slot == NEXT else slot


def _following(number: bytes) -> bytes:
    """Return the number plus one, in at least as many digits; b"" if that has more than 9 digits."""
    following = b"%0*d" % (len(number), int(number) + 1) if number else b""
    return following if len(following) <= 9 else b""


def _shared(one: bytes, other: bytes, last: int) -> int:
    """Return the shared length to write. It is the length `last` of the previous path if the true one is less than
    SHARED_MIN longer: zstd stores repeated lengths in almost no space."""
    if last and one[:last] == other[:last] and one[: last + SHARED_MIN] != other[: last + SHARED_MIN]:
        return last
    if one[:SHARED_MIN] != other[:SHARED_MIN] or len(one) < SHARED_MIN:
        return 0
    most = min(len(one), len(other), SHARED_MAX)
    return next((at for at in range(SHARED_MIN, most) if one[at] != other[at]), most)
