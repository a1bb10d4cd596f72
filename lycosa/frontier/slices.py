"""A long listing, a bounded piece at a time: what a slice is and where the next one begins.

A cursor is `table:key`, the key in hexadecimal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Row

SCAN_MAX = 2000
"""Rows that one slice looks at, also when few of them are wanted: a crawl must not wait for a listing."""


class ScanSlice(NamedTuple):
    """Rows with their cursors, and where the next slice begins; None at the end."""

    rows: list[tuple[str, Row]]
    after: str | None


def next_slice(entries: Iterator[tuple[str, Row]], wanted: Callable[[Row], bool], limit: int) -> ScanSlice:
    """Return the rows wanted among the next ones."""
    found: list[tuple[str, Row]] = []
    for looked, (cursor, row) in enumerate(entries, 1):
        if wanted(row):
            found.append((cursor, row))
        if len(found) >= limit or looked >= SCAN_MAX:
            return ScanSlice(found, cursor)
    return ScanSlice(found, None)


def parse_cursor(after: str) -> tuple[int, bytes]:
    """Return the table and the key of a cursor; what is before everything for "". Raises `UsageError`."""
    if not after:
        return 0, b""
    table, _, key = after.partition(":")
    try:
        return int(table), bytes.fromhex(key)
    except ValueError:
        raise UsageError(f"{after!r} is no place in a listing: begin with an empty one") from None
