"""Checks the consistency of an embedded frontier. Call `checkpoint` first.

- Every row can be read, and SEEN maps its fingerprint to this row (except rows with `dont_filter`).
- Every fingerprint in SEEN is in exactly one state, and (in an open segment) in the Bloom filter.
- The counts match the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from lycosa.frontier.lsm.infohash_rows import decode_delayed, decode_done_row, decode_queued, mark_of
from lycosa.frontier.lsm.lmdb import DELAYED, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.open_segment import OpenSegment
from lycosa.frontier.lsm.rows import ARRIVAL_BYTES, decode_dead_row

PROBLEMS_MAX = 1000
"""Maximum number of inconsistencies that one check reports."""

SCAN_ROWS = 10_000
REPORT_EVERY = 1_000_000
"""Rows between two progress reports."""


def find_problems(memtable: Memtable, live: Sequence[OpenSegment], report: Callable[[str], None]) -> list[str]:
    """Return the inconsistencies, one line each. After PROBLEMS_MAX lines, stop with the line "and more"."""
    found: list[str] = []
    for line in _check_all(memtable, live, report):
        found.append(line)
        if len(found) >= PROBLEMS_MAX:
            return [*found, "and more"]
    return found


def _check_all(memtable: Memtable, live: Sequence[OpenSegment], report: Callable[[str], None]) -> Iterator[str]:
    delayed: dict[str, int] = {}
    for key, record in _read(memtable, table_number(DELAYED), decode_delayed, report):
        if isinstance(record, str):
            yield record
            continue
        delayed[record.segment] = delayed.get(record.segment, 0) + 1
        segment = next((each for each in live if each.row.name == record.segment), None)
        if segment is not None and not record.dont_filter:
            yield from _check_mark(memtable, segment, record.fingerprint, mark_of(key), record.url)
    for segment in live:
        yield from _check_segment(memtable, segment, delayed.get(segment.row.name, 0), report)


def _check_segment(
    memtable: Memtable, segment: OpenSegment, delayed: int, report: Callable[[str], None]
) -> Iterator[str]:
    row, filtered = segment.row, delayed
    counted = {}
    for state, table, decode in (
        ("queued", segment.queue, decode_queued),
        ("done", segment.done, decode_done_row),
        ("dead", segment.dead, decode_dead_row),
    ):
        counted[state] = 0
        for key, value in _read(memtable, table, decode, report):
            counted[state] += 1
            if isinstance(value, str):
                yield value
                continue
            record = value.record if state == "dead" else value
            if not record.dont_filter:
                filtered += 1
                url = getattr(record, "url", "") or record.path
                yield from _check_mark(memtable, segment, record.fingerprint, key[-ARRIVAL_BYTES:], url)
    yield from _check_count(row.name, "queued", counted["queued"], row.pending)
    yield from _check_count(row.name, "done", counted["done"], row.done)
    yield from _check_count(row.name, "dead", counted["dead"], row.dead)
    yield from _check_count(row.name, "delayed", delayed, row.delayed)
    seen = 0
    for fingerprint in memtable.levels.fingerprints(segment.seen):
        seen += 1
        if seen % REPORT_EVERY == 0:
            report(f"segment {row.name!r}: {seen:,} fingerprints")
        if segment.is_open and fingerprint not in segment.filter:
            yield f"segment {row.name!r}: fingerprint {fingerprint:016x} is not in the Bloom filter"
    # Each row has its fingerprint in SEEN, as checked above. Any further fingerprints have no row.
    if seen > filtered:
        yield f"segment {row.name!r}: {seen - filtered} known fingerprints belong to no URL in any state"


def _check_mark(memtable: Memtable, segment: OpenSegment, fingerprint: int, mark: bytes, url: str) -> Iterator[str]:
    found = memtable.levels.find(segment.seen, fingerprint)
    if found != mark:
        problem = "is unknown" if found is None else "points to another row"
        yield f"segment {segment.row.name!r}: the fingerprint {fingerprint:016x} of {url} {problem}"


def _check_count(segment: str, state: str, found: int, counted: int) -> Iterator[str]:
    if found != counted:
        yield f"segment {segment!r}: {found} URLs are {state}, but the count is {counted}"


def _read(
    memtable: Memtable, table: int, decode: Callable[[bytes, bytes], Any], report: Callable[[str], None]
) -> Iterator[tuple[bytes, Any]]:
    """Yield the keys and decoded rows of a table, or the error message for a row that cannot be read."""
    after, read = b"", 0
    while rows := memtable.database.rows_after(table, after, b"", SCAN_ROWS):
        for key, value in rows:
            try:
                yield key, decode(key, value)
            except (msgspec.MsgspecError, ValueError) as error:
                yield key, f"table {table}: the row {key.hex()} cannot be read ({error})"
        read += len(rows)
        after = rows[-1][0]
        if read % REPORT_EVERY < SCAN_ROWS:
            report(f"table {table}: {read:,} rows")
