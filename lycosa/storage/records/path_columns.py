"""Encodes the paths of a torrent in columns, which zstd compresses better.

A path is encoded as three values: the length of the beginning that it shares with the previous path, the length of the
shared end, and the middle. NEXT stands for a number that is one more than the number at the same place in the previous
path. So the paths of a hundred episodes take little more space than the titles. Paths must not contain NEXT or line
ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import cycle, repeat

from lycosa.storage.records.database import slices

NEXT = b"\x01"
LINE = b"\n"
SHARED_MAX = 255
"""One byte holds the length of a shared beginning or end."""
SHARED_MIN = 4
"""Writing the length of a shorter shared beginning or end would not save space."""
DIGITS_MAX = 9
PATHS_AT_ONCE = 500
"""Bounds the memory of a comparison."""
_RUN = re.compile(rb"[0-9]+")
_NUMBERS = re.compile(rb"[0-9]{1,9}")
_SLOTS = re.compile(rb"[0-9]{1,9}|\x01")


def to_columns(paths: list[bytes]) -> bytes:
    """Return the lengths of the shared beginnings, the lengths of the shared ends, and the middles."""
    starts, ends, middles = bytearray(), bytearray(), []
    last, following = b"", NEXT  # NEXT stands for "no number": no path contains NEXT
    # In an encoded path, the first `head` bytes end with NEXT, and `tail` bytes follow. Without NEXT, `head` is 0, and
    # `tail` is the length of the path.
    last_head = last_tail = start = end = first = stop = 0
    for path, forward, backward in _shared_bytes(paths):
        head, tail = 0, len(path)
        if path.startswith(following, first) and forward >= first and not path[stop : stop + 1].isdigit():
            head = first + 1
        elif path[forward : forward + 1].isdigit() and (number := _next_number(path, last, forward)):
            first, stop = number
            head = first + 1
        if head:
            tail -= stop
            following = _following(path[first:stop]) or NEXT
        else:
            following = NEXT
        if head and head == last_head:
            shared = head + _equal_bytes(path[stop:], last[len(last) - last_tail :])
        elif head or last_head:
            shared = min(forward, (head or last_head) - 1, (last_head or head) - 1)
        else:
            shared = forward
        if not start <= shared < start + SHARED_MIN:
            start = min(shared, SHARED_MAX) if shared >= SHARED_MIN else 0
        most = tail if start < head else head + tail - start
        last_most = last_tail if start < last_head else last_head + last_tail - start
        shared = min(backward, most, last_most)
        if not end <= shared < end + SHARED_MIN:
            end = shared if shared >= SHARED_MIN else 0
        at = len(path) - tail
        if start < head:
            middles.append(path[start:first] + NEXT + path[at : len(path) - end])
        else:
            middles.append(path[at + start - head : len(path) - end])
        starts.append(start)
        ends.append(end)
        last, last_head, last_tail = path, head, tail
    return bytes(starts) + bytes(ends) + LINE.join(middles)


def from_columns(columns: bytes, count: int) -> Iterator[bytes]:
    """Yield the `count` paths in these columns."""
    starts, ends, middles = columns[:count], columns[count : 2 * count], columns[2 * count :].split(LINE)
    template = path = b""
    for start, end, middle in zip(starts, ends, middles if count else [], strict=True):
        template = template[:start] + middle + template[len(template) - end :]
        if NEXT not in template:
            path = template
        else:
            head, _, tail = template.partition(NEXT)
            # Usually the template has one NEXT, and the number is at the same place in the previous path.
            alone = NEXT not in tail and path.startswith(head) and not head[-1:].isdigit()
            number = _NUMBERS.match(path, len(head)) if alone else None
            if number:
                path = head + _following(number[0]) + tail
            else:
                following = iter(_NUMBERS.findall(path))
                path = _SLOTS.sub(lambda slot, last=following: _filled(slot[0], next(last, b"")), template)  # type: ignore[misc]
        yield path


def _filled(slot: bytes, last: bytes) -> bytes:
    return _following(last) if slot == NEXT else slot


@lru_cache(1 << 10)
def _following(number: bytes) -> bytes:
    """Return the number plus one, in at least as many digits; b"" if it has more than 9 digits."""
    following = b"%0*d" % (len(number), int(number) + 1) if number else b""
    return following if len(following) <= DIGITS_MAX else b""


def _next_number(path: bytes, last: bytes, at: int) -> tuple[int, int] | None:
    """Return the start and end of the number at `at`, the place where the two paths first differ.

    None if it is not one more than the number in the previous path.
    """
    if not last[at : at + 1].isdigit():
        return None
    first = at
    while first and path[first - 1 : first].isdigit():
        first -= 1
    number, before = (_RUN.match(each, first)[0] for each in (path, last))  # type: ignore[index]
    if len(before) > DIGITS_MAX or number != _following(before):
        return None
    return first, first + len(number)


def _shared_bytes(paths: list[bytes]) -> Iterator[tuple[bytes, int, int]]:
    """Yield each path, and how many bytes of beginning and end it shares with the previous path."""
    last = b""
    for some in slices(paths, PATHS_AT_ONCE):
        rows = [last, *some]
        width = min(max(map(len, rows)), SHARED_MAX)
        # Successive paths are padded with different bytes, which paths never contain. So padding is never shared.
        starts = b"".join(map(bytes.ljust, (path[:width] for path in rows), repeat(width), cycle((NEXT, LINE))))
        ends = b"".join(map(bytes.rjust, (path[-width:] for path in rows), repeat(width), cycle((NEXT, LINE))))
        places = range(width, len(starts), width) if width else ()
        changed, changed_end = _changes(starts, width), _changes(ends, width)
        forward = [width - len(changed[at : at + width].lstrip(b"\0")) for at in places]
        backward = [width - len(changed_end[at : at + width].rstrip(b"\0")) for at in places]
        yield from zip(some, forward or repeat(0), backward or repeat(0), strict=False)
        last = some[-1]


def _changes(rows: bytes, width: int) -> bytes:
    """Return the rows, each byte combined by xor with the one above it. Faster than a loop."""
    number = int.from_bytes(rows)
    return (number ^ number >> 8 * width).to_bytes(len(rows))


def _equal_bytes(one: bytes, other: bytes) -> int:
    if one == other:
        return len(one)
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
