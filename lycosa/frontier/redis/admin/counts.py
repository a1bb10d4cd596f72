"""What can be read of a crawl in Redis beside its exchanges: counts, segments, reasons, the first of the dead."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from lycosa.frontier.core.model import FrontierStats, HostFacts, SegmentState, SegmentView, UrlRecord
from lycosa.frontier.core.segments import segment_order, starts_at
from lycosa.frontier.core.states import State
from lycosa.frontier.redis.lanes import row_of
from lycosa.frontier.redis.worker.session import Session

_facts = msgspec.msgpack.Decoder(HostFacts).decode

DONE, DEAD = "y", "z"
"""The hashes of why URLs are done, and dead."""


async def counted(session: Session, offered: int) -> FrontierStats:
    """Return the counts of all partitions; so many records were offered by this worker."""
    await session.look()
    return await stats_of(session, offered)


async def stats_of(session: Session, offered: int = 0, hosts: int = 0) -> FrontierStats:
    """Return what the partitions told last, with the reasons."""
    total = session.total
    return FrontierStats(
        total("queued") + total("outgoing"),
        total("leased"),
        total("delayed"),
        total("done"),
        total("dead"),
        reasons=await reasons(session, DONE),
        dead_reasons=await reasons(session, DEAD),
        hosts=hosts,
        offered=offered,
        added=session.wire.added,
    )


async def first_dead(session: Session, limit: int) -> list[tuple[UrlRecord, str]]:
    """Return dead records with their reasons."""
    found: list[tuple[UrlRecord, str]] = []
    for name in sorted(await segment_states(session), key=segment_order):
        for members in await session.read_all("ended", "e", name, "", limit):
            rows = (row_of(State.DEAD, member) for member in members)
            found += [(row.record, row.reason) for row in rows]
        if len(found) >= limit:
            break
    return found[:limit]


async def segment_states(session: Session) -> dict[str, str]:
    """Return the state of each segment."""
    states: dict[str, str] = {}
    for partition in session.partitions:
        found = await session.ask("hgetall", partition, "g")
        states |= {name.decode(): state.decode() for name, state in found.items()}
    return states


async def segment_counts(session: Session) -> dict[str, dict[str, int]]:
    """Return the counts of each segment."""
    await session.outlook()
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


async def segment_views(session: Session) -> list[SegmentView]:
    """Describe the segments, those that were dropped last."""
    states, counts = await segment_states(session), await segment_counts(session)
    reasons, dead = await reasons_by_segment(session, DONE), await reasons_by_segment(session, DEAD)
    live = sorted((name for name in states if states[name] != SegmentState.DROPPED), key=segment_order)
    gone = sorted((name for name in states if states[name] == SegmentState.DROPPED), key=segment_order)
    views = [
        _view(name, states[name], counts.get(name, {}), reasons.get(name, {}), dead.get(name, {})) for name in live
    ]
    return views + [SegmentView(name, SegmentState.DROPPED, starts_at(name)) for name in gone]


def _view(
    name: str, state: str, counts: Mapping[str, int], reasons: dict[str, int], dead: dict[str, int]
) -> SegmentView:
    told = {key: counts.get(key, 0) for key in ("queued", "leased", "delayed", "done", "dead")}
    busy = told["queued"] or told["leased"] or told["delayed"] or counts.get("uncommitted", 0)
    word = SegmentState(state)
    if word is SegmentState.OPEN and not busy:
        word = SegmentState.FINISHED
    return SegmentView(name, word, starts_at(name), **told, reasons=reasons, dead_reasons=dead)


async def facts_of(session: Session, host: str) -> HostFacts | None:
    """Return what a crawl remembers of a host."""
    data = await session.ask("hget", session.of(host), "f", host)
    return _facts(data) if data is not None else None
