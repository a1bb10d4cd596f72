"""Finds a URL of a crawl in Redis by its fingerprint, and builds the view of a host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lycosa.frontier.core.model import RECORD_VERSION, AddressView, HostView, Row, SegmentState, UrlRecord
from lycosa.frontier.core.states import State
from lycosa.frontier.redis.admin.counts import segment_states
from lycosa.frontier.redis.admin.listing import DELAYED, LEASED, timed_row
from lycosa.frontier.redis.lanes import decode, needle_of, row_of, signed
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session


async def find(session: Session, fingerprint: int, host: str, states: Collection[str]) -> list[Row]:
    """Return a row for each segment that has this fingerprint; with `states`, only rows in these states.

    Unless the crawl keeps done records, the row of a done record has only its state, and `host` if given.
    """
    partitions = [session.partition_of(host)] if host else session.partitions
    segments = await segment_states(session)
    rows = [row for each in partitions for row in await _find_in(session, each, fingerprint, host, states, segments)]
    return [row for row in rows if not states or row.state in states]


async def _find_in(
    session: Session,
    partition: Partition,
    fingerprint: int,
    host: str,
    states: Collection[str],
    segments: Mapping[str, str],
) -> list[Row]:
    ended_only = bool(states) and {*states} <= {State.DEAD, State.ARCHIVED}
    needle = b"" if ended_only else needle_of(fingerprint)
    arguments = (signed(fingerprint), f"{fingerprint:016x}", needle)
    rows = []
    for name, dead, done, leased in await session.operate(partition, "find", *arguments):
        segment = name.decode()
        archived = segments.get(segment) == SegmentState.ARCHIVED
        row = _filtered([row_of(State.ARCHIVED if archived else State.DEAD, member) for member in dead])
        row = row or _filtered([row_of(State.ARCHIVED if archived else State.DONE, member) for member in done])
        row = row or _filtered([_leased_row(partition, *each) for each in leased])
        if row is None and not ended_only:
            row = await _seek_queued(session, partition, segment, needle, host)
            row = row or await _seek_delayed(session, partition, segment, needle)
            record = UrlRecord(RECORD_VERSION, fingerprint, "", host, segment)
            row = row or Row(State.ARCHIVED if archived else State.DONE, record)
        rows += [row] if row else []
    return rows


def _filtered(rows: Sequence[Row]) -> Row | None:
    """Return the row without `dont_filter`. Records with `dont_filter` may have the same fingerprint."""
    return next((row for row in rows if not row.record.dont_filter), None)


def _leased_row(partition: Partition, data: bytes, acked: int, detail: bytes) -> Row:
    if acked:
        return Row(State.DONE, decode(data), 0.0, detail.decode())
    return timed_row(LEASED, data, float(detail) - partition.clock_ahead_s)


async def _seek_queued(session: Session, partition: Partition, segment: str, needle: bytes, host: str) -> Row | None:
    place: Sequence[Any] = ("", "", 0)
    while True:
        data, *place = await session.operate(partition, "seek_queued", needle, segment, host, *place)
        row = _filtered([Row(State.QUEUED, decode(data))] if data else [])
        if row or not place[0]:
            return row


async def _seek_delayed(session: Session, partition: Partition, segment: str, needle: bytes) -> Row | None:
    cursor = b"0"
    while True:
        cursor, found = await session.operate(partition, "seek_delayed", needle, segment, cursor)
        row = _filtered([timed_row(DELAYED, data, float(due) - partition.clock_ahead_s) for data, due in found])
        if row or cursor == b"0":
            return row


def host_view(reply: Sequence[Any], policy: Mapping[str, float], clock_ahead_s: float, *, runs: bool) -> HostView:
    """Decode a host. The partition's clock is `clock_ahead_s` ahead of ours. `runs`: the crawl has workers."""
    (
        name, queued, in_flight, ready_at, paused_until, delay, started_at, address, address_until, preparing,
        robots_status, robots_at, *group,
    ) = reply  # fmt: skip

    def ours(time: bytes) -> float:
        return float(time) - clock_ahead_s if float(time) else 0.0

    shared = None
    if policy.get("resolves"):
        group_ready_at, group_in_flight, hosts = group
        places, delay_s = int(policy["ip_places"]), policy["ip_delay"]
        shared = AddressView(
            address.decode(), ours(group_ready_at), group_in_flight, places, delay_s, hosts, ours(address_until)
        )
    return HostView(
        name.decode(),
        queued,
        in_flight,
        ours(ready_at),
        ours(paused_until),
        float(delay),
        ours(started_at),
        address.decode(),
        robots_status,
        float(robots_at),
        int(policy.get("places", 0)) if runs else 0,
        bool(preparing),
        shared,
    )
