"""Whether everything in an embedded frontier fits together; settle it first.

every row can be read, and its URL is in SEEN as what it is (but for those that were never to be filtered)
every fingerprint in SEEN is in exactly one state, and in the Bloom filter
the counts are those of the rows
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from lycosa.frontier.lsm.lmdb import DELAYED, table_number
from lycosa.frontier.lsm.memtable import Memtable
from lycosa.frontier.lsm.open_segment import OpenSegment
from lycosa.frontier.lsm.rows import ARRIVAL, decode_dead, decode_done, decode_record

PROBLEMS_MAX = 1000
"""Lines that are reported; after so many the rest is of no use."""

SCAN_ROWS = 10_000
SAY_EVERY = 1_000_000


def find_problems(tables: Memtable, live: Sequence[OpenSegment], say: Callable[[str], None]) -> list[str]:
    """Return what does not fit together, a line each, at most PROBLEMS_MAX."""
    found: list[str] = []
    for line in _all(tables, live, say):
        found.append(line)
        if len(found) >= PROBLEMS_MAX:
            return [*found, "and more"]
    return found


def _all(tables: Memtable, live: Sequence[OpenSegment], say: Callable[[str], None]) -> Iterator[str]:
    sleeping: dict[str, int] = {}
    for key, record in _read(tables, table_number(DELAYED), decode_record, say):
        if isinstance(record, str):
            yield record
            continue
        sleeping[record.segment] = sleeping.get(record.segment, 0) + 1
        segment = next((each for each in live if each.row.name == record.segment), None)
        if segment is not None and not record.dont_filter:
            yield from _is_marked(tables, segment, record.fingerprint, b"s" + key, record.url)
    for segment in live:
        yield from _segment(tables, segment, sleeping.get(segment.row.name, 0), say)


def _segment(tables: Memtable, segment: OpenSegment, sleeping: int, say: Callable[[str], None]) -> Iterator[str]:
    row, filtered = segment.row, sleeping
    counted = {}
    for what, table, decode in (
        ("queued", segment.queue, decode_record),
        ("done", segment.done, decode_done),
        ("dead", segment.dead, decode_dead),
    ):
        counted[what] = 0
        for key, value in _read(tables, table, decode, say):
            counted[what] += 1
            if isinstance(value, str):
                yield value
                continue
            record = value.record if what == "dead" else value
            if not record.dont_filter:
                filtered += 1
                url = getattr(record, "url", "") or record.path
                yield from _is_marked(tables, segment, record.fingerprint, key[-ARRIVAL:], url)
    yield from _counts(row.name, "queued", counted["queued"], row.pending)
    yield from _counts(row.name, "done", counted["done"], row.done)
    yield from _counts(row.name, "dead", counted["dead"], row.dead)
    yield from _counts(row.name, "delayed", sleeping, row.sleeping)
    seen = 0
    for fingerprint in tables.levels.fingerprints(segment.seen):
        seen += 1
        if seen % SAY_EVERY == 0:
            say(f"segment {row.name!r}: {seen:,} fingerprints")
        if segment.is_open and fingerprint not in segment.filter:
            yield f"segment {row.name!r}: fingerprint {fingerprint:016x} is not in the Bloom filter"
    # Each row has its mark, and there are no more marks than rows: so no mark is without a row.
    if seen > filtered:
        yield f"segment {row.name!r}: {seen - filtered} fingerprints are known, but in no state"


def _is_marked(tables: Memtable, segment: OpenSegment, fingerprint: int, mark: bytes, url: str) -> Iterator[str]:
    found = tables.levels.find(segment.seen, fingerprint)
    if found != mark:
        what = "unknown" if found is None else "known as another one"
        yield f"segment {segment.row.name!r}: the fingerprint {fingerprint:016x} of {url} is {what}"


def _counts(segment: str, what: str, counted: int, told: int) -> Iterator[str]:
    if counted != told:
        yield f"segment {segment!r}: {counted} URLs are {what}, and {told} were counted"


def _read(
    tables: Memtable, table: int, decode: Callable[[bytes], Any], say: Callable[[str], None]
) -> Iterator[tuple[bytes, Any]]:
    """Yield the rows of a table; in the place of one that cannot be read, what is wrong with it."""
    behind, read = b"", 0
    while rows := tables.database.behind(table, behind, b"", SCAN_ROWS):
        for key, value in rows:
            try:
                yield key, decode(value)
            except (msgspec.MsgspecError, ValueError) as error:
                yield key, f"table {table}: the row {key.hex()} cannot be read ({error})"
        read += len(rows)
        behind = rows[-1][0]
        if read % SAY_EVERY < SCAN_ROWS:
            say(f"table {table}: {read:,} rows")
