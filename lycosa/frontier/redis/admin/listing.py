"""Lists the URLs of a crawl in Redis in slices. A slice takes a few calls of `frontier/redis/lua/listing.lua`.

A listing reads one table after another, ordered by segment, state and partition. A cursor is a table and the position
there, as JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Row, SegmentState, Selection
from lycosa.frontier.core.rows import Matcher
from lycosa.frontier.core.segments import segment_order
from lycosa.frontier.core.states import State
from lycosa.frontier.redis.admin.counts import segment_states
from lycosa.frontier.redis.lanes import ROW_START, decode, row_of
from lycosa.frontier.redis.worker.session import Session

CALLS_MAX = 20
"""A slice without matching rows ends after this many calls."""

ROWS_MAX = 1000
"""Maximum number of rows that one call reads. Such a call blocks the server for a few milliseconds."""

QUEUED, LEASED, DELAYED, DEAD, DONE = range(5)


class ListedTable(NamedTuple):
    """A table: its name in the script, the states and the counters of its rows, its first position."""

    name: str
    states: set[State]
    counted_as: tuple[str, ...]
    start: tuple[str, ...]


TABLES = (
    ListedTable("queued", {State.QUEUED}, ("queued",), ("", "", "0")),
    ListedTable("leased", {State.LEASED}, ("leased", "uncommitted"), ("", "0")),
    ListedTable("delayed", {State.DELAYED, State.RETRY}, ("delayed",), ("", "0")),
    ListedTable("dead", {State.DEAD, State.ARCHIVED}, ("dead",), ("",)),
    ListedTable("done", {State.DONE, State.ARCHIVED}, ("done",), ("",)),
)
ENDED = (DEAD, DONE)


class ListingCursor(msgspec.Struct, array_like=True, frozen=True):
    """A table of one segment in one partition, and the position after the listed rows."""

    segment: str
    table: int
    partition: int
    place: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[tuple[float, str], int, int]:
        return segment_order(self.segment), self.table, self.partition


class StoredRow(NamedTuple):
    """`member` is the sorted-set member that stores a dead or done row, b"" for others."""

    member: bytes
    row: Row


class ListingSlice(NamedTuple):
    """Rows of one table; `cursor` is None at the end."""

    table: ListingCursor
    rows: list[StoredRow]
    cursor: str | None


_encode_cursor = msgspec.json.Encoder().encode
_decode_cursor = msgspec.json.Decoder(ListingCursor).decode


async def next_slice(
    session: Session, selection: Selection, cursor: str, limit: int, tables: Sequence[int] = range(len(TABLES))
) -> ListingSlice:
    """Return at most `limit` matching rows; the slice may be empty. Raises `UsageError` for a bad cursor."""
    last = _parse_cursor(cursor) if cursor else None
    states = await segment_states(session)
    await session.status()
    ahead = [each for each in _tables(session, states, selection, tables) if not last or each.rank >= last.rank]
    if last and ahead and ahead[0].rank == last.rank:
        ahead[0] = last
    matches = Matcher(selection).matches
    for _ in range(CALLS_MAX):
        if not ahead:
            break
        table = ahead.pop(0)
        archived = states[table.segment] == SegmentState.ARCHIVED
        rows, place = await _read(session, table, selection.host, max(1, min(limit, ROWS_MAX)), archived=archived)
        if place:
            ahead.insert(0, msgspec.structs.replace(table, place=place))
        found = [each for each in rows if matches(each.row)]
        if found:
            return ListingSlice(table, found, _next_cursor(ahead))
    return ListingSlice(ListingCursor("", 0, 0), [], _next_cursor(ahead))


def _next_cursor(ahead: Sequence[ListingCursor]) -> str | None:
    return _encode_cursor(ahead[0]).decode() if ahead else None


def _parse_cursor(cursor: str) -> ListingCursor:
    try:
        found = _decode_cursor(cursor)
        if not found.place or len(found.place) == len(TABLES[found.table].start):
            return found
    except (msgspec.MsgspecError, IndexError):
        pass
    raise UsageError(f"{cursor!r} is not a valid cursor of a listing: begin with an empty one")


def _tables(
    session: Session, states: dict[str, str], selection: Selection, tables: Sequence[int]
) -> list[ListingCursor]:
    """Return the start of each table that may have selected rows."""
    segments = [name for name, state in states.items() if state != SegmentState.DROPPED]
    partitions = [session.partition_of(selection.host)] if selection.host else session.partitions
    return [
        ListingCursor(segment, table, partition.number)
        for segment in sorted(segments, key=segment_order)
        if selection.segment in (None, segment)
        for table in tables
        if not selection.states or TABLES[table].states & {*selection.states}
        if table != DONE or session.keep_done
        for partition in partitions
        if any(partition.segments.get(segment, {}).get(state) for state in TABLES[table].counted_as)
    ]


async def _read(
    session: Session, cursor: ListingCursor, host: str, limit: int, *, archived: bool
) -> tuple[list[StoredRow], tuple[str, ...]]:
    """Return the next rows of a table, and the position after them; () at its end."""
    table, partition = TABLES[cursor.table], session.partitions[cursor.partition]
    place = cursor.place or table.start
    if cursor.table in ENDED:
        members = await session.operate(partition, "ended", table.name, cursor.segment, *place, limit)
        state = State.ARCHIVED if archived else State.DEAD if cursor.table == DEAD else State.DONE
        rows = [StoredRow(member, row_of(state, member)) for member in members]
        return rows, (members[-1][:ROW_START].decode(),) if len(members) == limit else ()
    only_host = (host,) if cursor.table == QUEUED else ()
    found, *following = await session.operate(partition, table.name, cursor.segment, *only_host, *place, limit)
    if cursor.table == QUEUED:
        rows = [StoredRow(b"", Row(State.QUEUED, decode(data))) for data in found]
    else:
        ahead_s, pairs = partition.clock_ahead_s, zip(found[::2], found[1::2], strict=True)
        rows = [StoredRow(b"", timed_row(cursor.table, data, float(time) - ahead_s)) for data, time in pairs]
    return rows, tuple(part.decode() for part in following) if following[0] else ()


def timed_row(table: int, data: Any, at: float) -> Row:
    """The row of a record that is leased until `at`, or due then."""
    record = decode(data)
    if table == LEASED:
        return Row(State.LEASED, record, at)
    return Row(State.RETRY if record.attempts else State.DELAYED, record, at)
