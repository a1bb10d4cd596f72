"""Reads counts, segments and other data of a crawl in Redis. The reader need not be a worker."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

import msgspec

from lycosa.frontier.core.model import FrontierStats, HostFacts, SegmentState, SegmentView, UrlRecord
from lycosa.frontier.core.segments import segment_order, starts_at
from lycosa.frontier.core.states import State
from lycosa.frontier.core.telemetry import sum_counts
from lycosa.frontier.redis.lanes import row_of
from lycosa.frontier.redis.layout import CLOSING, Key
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session

_DECIDED = (SegmentState.OPEN, SegmentState.ARCHIVED, SegmentState.DROPPED)
_decode_facts = msgspec.msgpack.Decoder(HostFacts).decode


async def read_stats(session: Session, offered: int = 0, hosts: int = 0) -> FrontierStats:
    """Return the counts as last received, and those by reason. This worker pushed `offered` records."""
    total = session.total
    return FrontierStats(
        total("queued") + total("outgoing"),
        total("leased"),
        total("delayed"),
        total("done"),
        total("dead"),
        reasons=sum_counts((await _reasons(session, Key.DONE_REASONS)).values()),
        dead_reasons=sum_counts((await _reasons(session, Key.DEAD_REASONS)).values()),
        hosts=hosts,
        offered=offered,
        added=session.calls.added,
    )


async def read_dead(session: Session, limit: int) -> list[tuple[UrlRecord, str]]:
    """Return at most `limit` dead records with their reasons."""
    found: list[tuple[UrlRecord, str]] = []
    for segment in sorted(await segment_states(session), key=segment_order):
        for members in await session.operate_all("ended", "dead", segment, "", limit):
            rows = (row_of(State.DEAD, member) for member in members)
            found += [(row.record, row.reason) for row in rows]
        if len(found) >= limit:
            break
    return found[:limit]


async def segment_states(session: Session) -> dict[str, str]:
    """Return the state of each segment: archived or dropped once one partition says so."""
    states: dict[str, str] = {}
    for partition in session.partitions:
        for name, state in (await stored_states(session, partition)).items():
            states[name] = max(states.get(name, SegmentState.OPEN), state, key=_DECIDED.index)
    return states


async def stored_states(session: Session, partition: Partition) -> dict[str, str]:
    """Return the states that a partition stores; OPEN for a segment that is being archived."""
    found = await session.query("hgetall", partition, Key.SEGMENTS)
    states = {name.decode(): state.decode() for name, state in found.items()}
    return {name: SegmentState.OPEN if state == CLOSING else state for name, state in states.items()}


async def segment_views(session: Session) -> list[SegmentView]:
    """Return the views of the segments, dropped ones last."""
    states, counts = await segment_states(session), await _segment_counts(session)
    reasons = await _reasons(session, Key.DONE_REASONS)
    dead_reasons = await _reasons(session, Key.DEAD_REASONS)
    names = sorted(states, key=lambda name: (states[name] == SegmentState.DROPPED, segment_order(name)))
    return [
        SegmentView(name, SegmentState.DROPPED, starts_at(name))
        if states[name] == SegmentState.DROPPED
        else _view(name, states[name], counts.get(name, {}), reasons.get(name, {}), dead_reasons.get(name, {}))
        for name in names
    ]


async def host_facts_of(session: Session, host: str) -> HostFacts | None:
    """Return the stored facts of a host."""
    data = await session.query("hget", session.partition_of(host), Key.HOST_FACTS, host)
    return _decode_facts(data) if data is not None else None


async def _segment_counts(session: Session) -> Mapping[str, Mapping[str, int]]:
    await session.status()
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for partition in session.partitions:
        for segment, part in partition.segments.items():
            counts[segment].update(part)
    return counts


async def _reasons(session: Session, key: Key) -> dict[str, dict[str, int]]:
    reasons: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for partition in session.partitions:
        for field, count in (await session.query("hgetall", partition, key)).items():
            segment, _, reason = field.decode().partition("\n")
            reasons[segment][reason] += int(count)
    return {segment: {reason: n for reason, n in found.items() if n} for segment, found in reasons.items()}


def _view(
    name: str, state: str, counts: Mapping[str, int], reasons: dict[str, int], dead_reasons: dict[str, int]
) -> SegmentView:
    numbers = {each: counts.get(each, 0) for each in ("queued", "leased", "delayed", "done", "dead")}
    is_busy = numbers["queued"] or numbers["leased"] or numbers["delayed"] or counts.get("uncommitted", 0)
    if state == SegmentState.OPEN and not is_busy:
        state = SegmentState.FINISHED
    return SegmentView(
        name, SegmentState(state), starts_at(name), **numbers, reasons=reasons, dead_reasons=dead_reasons
    )
