"""Lists the URLs of a crawl in Redis, slice by slice: a slice is a few calls of `frontier/redis/lua/listing.lua`.

A listing goes through stretches: segment by segment, in each state by state, in each partition by partition. Its cursor
is the stretch and the place in it, as JSON.
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
from lycosa.frontier.redis.lanes import PLACE, decode, row_of
from lycosa.frontier.redis.worker.session import Session

CALLS_MAX = 20
"""Calls of one slice that find nothing."""

ROWS_MAX = 1000
"""Rows that one call reads: so long, a few milliseconds, the server does nothing else."""

QUEUED, LEASED, ASLEEP, DEAD, DONE = range(5)
STATES = (
    {State.QUEUED},
    {State.LEASED},
    {State.DELAYED, State.RETRY},
    {State.DEAD, State.ARCHIVED},
    {State.DONE, State.ARCHIVED},
)
COUNTED = (("queued",), ("leased", "uncommitted"), ("delayed",), ("dead",), ("done",))
STARTS = (("", "", "0"), ("", "0"), ("", "0"), ("",), ("",))
KINDS = {DEAD: "e", DONE: "v"}
ENDED = tuple(KINDS)


class Place(msgspec.Struct, array_like=True, frozen=True):
    """A stretch (what is in one state in one partition of a segment), and what in it has been listed."""

    segment: str
    table: int
    partition: int
    at: tuple[str, ...] = ()

    @property
    def rank(self) -> tuple[tuple[float, str], int, int]:
        """What stretches are sorted by."""
        return segment_order(self.segment), self.table, self.partition


class Found(NamedTuple):
    """A row, and under which name it is kept ("" for what is neither done nor dead)."""

    member: bytes
    row: Row


class Slice(NamedTuple):
    """Rows of one stretch, and where the next slice begins; None at the end."""

    place: Place
    found: list[Found]
    after: str | None


encode_place = msgspec.json.Encoder().encode
decode_place = msgspec.json.Decoder(Place).decode


async def next_slice(
    session: Session, selection: Selection, after: str, limit: int, tables: Sequence[int] = range(len(STATES))
) -> Slice:
    """Return the next rows that match, at most so many. Raises `UsageError` for what is no place in a listing."""
    behind = _place(after) if after else None
    states = await segment_states(session)
    await session.outlook()
    ahead = [
        place for place in _stretches(session, states, selection, tables) if not behind or place.rank >= behind.rank
    ]
    if behind and ahead and ahead[0].rank == behind.rank:
        ahead[0] = behind
    wanted = Matcher(selection).matches
    for _ in range(CALLS_MAX):
        if not ahead:
            break
        place = ahead.pop(0)
        archived = states[place.segment] == SegmentState.ARCHIVED
        rows, at = await _read(session, place, selection.host, max(1, min(limit, ROWS_MAX)), archived=archived)
        if at:
            ahead.insert(0, msgspec.structs.replace(place, at=at))
        found = [each for each in rows if wanted(each.row)]
        if found:
            return Slice(place, found, _cursor(ahead))
    return Slice(Place("", 0, 0), [], _cursor(ahead))


def _cursor(ahead: Sequence[Place]) -> str | None:
    return encode_place(ahead[0]).decode() if ahead else None


def _place(after: str) -> Place:
    try:
        place = decode_place(after)
        if not place.at or len(place.at) == len(STARTS[place.table]):
            return place
    except (msgspec.MsgspecError, IndexError):
        pass
    raise UsageError(f"{after!r} is no place in a listing: begin with an empty one")


def _stretches(session: Session, states: dict[str, str], selection: Selection, tables: Sequence[int]) -> list[Place]:
    """Return those in which there may be something that is meant."""
    live = [name for name, state in states.items() if state != SegmentState.DROPPED]
    partitions = [session.of(selection.host)] if selection.host else session.partitions
    return [
        Place(segment, table, partition.number)
        for segment in sorted(live, key=segment_order)
        if selection.segment in (None, segment)
        for table in tables
        if not selection.states or STATES[table] & {*selection.states}
        if table != DONE or session.keeps_done
        for partition in partitions
        if any(partition.segments.get(segment, {}).get(count) for count in COUNTED[table])
    ]


async def _read(
    session: Session, place: Place, host: str, limit: int, *, archived: bool
) -> tuple[list[Found], tuple[str, ...]]:
    """Return the next rows of a stretch, and the place behind them; an empty one at its end."""
    partition, at = session.partitions[place.partition], place.at or STARTS[place.table]
    if place.table in KINDS:
        members = await session.read(partition, "ended", KINDS[place.table], place.segment, *at, limit)
        state = State.ARCHIVED if archived else State.DEAD if place.table == DEAD else State.DONE
        rows = [Found(member, row_of(state, member)) for member in members]
        return rows, (members[-1][:PLACE].decode(),) if len(members) == limit else ()
    if place.table == QUEUED:
        found, *following = await session.read(partition, "queued", place.segment, host, *at, limit)
        rows = [Found(b"", Row(State.QUEUED, decode(data))) for data in found]
    else:
        command = "leased" if place.table == LEASED else "asleep"
        found, *following = await session.read(partition, command, place.segment, *at, limit)
        pairs = zip(found[::2], found[1::2], strict=True)
        rows = [Found(b"", timed_row(place.table, data, float(time) - partition.shift_s)) for data, time in pairs]
    return rows, tuple(part.decode() for part in following) if following[0] else ()


def timed_row(table: int, data: Any, at: float) -> Row:
    """Return the row of what is lent until then, or asleep."""
    record = decode(data)
    if table == LEASED:
        return Row(State.LEASED, record, at)
    return Row(State.RETRY if record.attempts else State.DELAYED, record, at)
