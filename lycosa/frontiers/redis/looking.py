"""What can be read of a crawl in Redis beside its exchanges: segments, reasons, the dead, what sleeps."""

from __future__ import annotations

from collections.abc import AsyncIterator

from lycosa.core.frontier import State
from lycosa.core.model import FrontierStats, Row, UrlRecord
from lycosa.frontiers.redis.lanes import decode
from lycosa.frontiers.redis.session import Session

DONE, DEAD = "y", "z"
"""The hashes of why URLs are done, and dead."""


async def counted(session: Session, offered: int) -> FrontierStats:
    """Return the counts of all partitions; so many records were offered by this worker."""
    await session.look()
    total = session.total
    return FrontierStats(
        total("queued") + total("outgoing"),
        total("leased"),
        total("delayed"),
        total("done"),
        total("dead"),
        reasons=await reasons(session, DONE),
        dead_reasons=await reasons(session, DEAD),
        offered=offered,
        added=session.wire.added,
    )


async def first_dead(session: Session, limit: int) -> list[tuple[UrlRecord, str]]:
    """Return dead records with their reasons."""
    found: list[tuple[UrlRecord, str]] = []
    async for row in dead_rows(session):
        found.append((row.record, row.reason))
        if len(found) >= limit:
            break
    return found


async def segment_states(session: Session) -> dict[str, str]:
    """Return the state of each segment."""
    states: dict[str, str] = {}
    for partition in session.partitions:
        found = await session.ask("hgetall", partition, "g")
        states |= {name.decode(): state.decode() for name, state in found.items()}
    return states


async def segment_counts(session: Session) -> dict[str, dict[str, int]]:
    """Return the counts of each segment."""
    await session.look()
    counts: dict[str, dict[str, int]] = {}
    for partition in session.partitions:
        for name, part in partition.segments.items():
            total = counts.setdefault(name, dict.fromkeys(part, 0))
            for word, number in part.items():
                total[word] += number
    return counts


async def reasons_by_segment(session: Session, name: str) -> dict[str, dict[str, int]]:
    """Return why the URLs of each segment are `DONE` or `DEAD`."""
    reasons: dict[str, dict[str, int]] = {}
    for partition in session.partitions:
        for field, count in (await session.ask("hgetall", partition, name)).items():
            segment, _, reason = field.decode().partition("\n")
            mine = reasons.setdefault(segment, {})
            mine[reason] = mine.get(reason, 0) + int(count)
    return {segment: {why: n for why, n in mine.items() if n} for segment, mine in reasons.items()}


async def reasons(session: Session, name: str) -> dict[str, int]:
    """Return why URLs are `DONE` or `DEAD`."""
    total: dict[str, int] = {}
    for mine in (await reasons_by_segment(session, name)).values():
        for reason, count in mine.items():
            total[reason] = total.get(reason, 0) + count
    return total


async def dead_rows(session: Session) -> AsyncIterator[Row]:
    """Yield what is dead."""
    for partition in session.partitions:
        async for _, data in session.wire.client.hscan_iter(partition.key + "e"):
            at, _, reason, record = data.split(b"\n", 3)
            yield Row(State.DEAD, decode(record), float(at), reason.decode())


async def sleeping_rows(session: Session) -> AsyncIterator[Row]:
    """Yield what sleeps."""
    for partition in session.partitions:
        async for member, due in session.wire.client.zscan_iter(partition.key + "d"):
            record = decode(member.split(b"\n", 2)[2])
            yield Row(State.RETRY if record.attempts else State.DELAYED, record, float(due))
