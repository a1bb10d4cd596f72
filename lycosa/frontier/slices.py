"""Slices of a long listing: each reads a bounded number of rows and returns the cursor of the next slice.

A cursor is `table:key` with the key in hexadecimal; "" starts a listing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Row

SCAN_MAX = 2000
"""Maximum number of rows that a slice reads, even if few match: a listing must not delay a running crawl."""


class ScanSlice(NamedTuple):
    """Rows with their cursors; `next_cursor` is None at the end."""

    rows: list[tuple[str, Row]]
    next_cursor: str | None


def next_slice(rows: Iterator[tuple[str, Row]], matches: Callable[[Row], bool], limit: int) -> ScanSlice:
    """Return at most `limit` matching rows among the next SCAN_MAX rows."""
    found: list[tuple[str, Row]] = []
    for number, (cursor, row) in enumerate(rows, 1):
        if matches(row):
            found.append((cursor, row))
        if len(found) >= limit or number >= SCAN_MAX:
            return ScanSlice(found, cursor)
    return ScanSlice(found, None)


def parse_cursor(cursor: str) -> tuple[int, bytes]:
    """Return the table and key of a cursor; for "" a pair that sorts before all others. Raises `UsageError`."""
    if not cursor:
        return 0, b""
    table, _, key = cursor.partition(":")
    try:
        return int(table), bytes.fromhex(key)
    except ValueError:
        raise UsageError(f"{cursor!r} is not a listing cursor: start with an empty one") from None
