"""Finds a URL of a crawl in Redis by its fingerprint, and what the crawl knows of a host."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lycosa.frontier.core.model import RECORD_VERSION, AddressView, HostView, Row, SegmentState, UrlRecord
from lycosa.frontier.core.states import State
from lycosa.frontier.redis.admin.counts import segment_states
from lycosa.frontier.redis.admin.listing import ASLEEP, LEASED, timed_row
from lycosa.frontier.redis.lanes import decode, needle_of, row_of, signed
from lycosa.frontier.redis.worker.partition import Partition
from lycosa.frontier.redis.worker.session import Session


async def find(session: Session, fingerprint: int, host: str, states: Collection[str]) -> list[Row]:
    """Return a row for each segment that has it; with `states` only what is in one of them, which may be faster.

    Of what is done and not kept nothing is known but that; and its host, if that was told.
    """
    partitions = [session.of(host)] if host else session.partitions
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
    rows = []
    for name, dead, done, held in await session.read(
        partition, "find", signed(fingerprint), f"{fingerprint:016x}", needle
    ):
        segment = name.decode()
        archived = segments.get(segment) == SegmentState.ARCHIVED
        row = _first([row_of(State.ARCHIVED if archived else State.DEAD, member) for member in dead])
        row = row or _first([row_of(State.ARCHIVED if archived else State.DONE, member) for member in done])
        row = row or _first([_held(partition, *each) for each in held])
        if row is None and not ended_only:
            row = await _seek_queued(session, partition, segment, needle, host)
            row = row or await _seek_asleep(session, partition, segment, needle)
            record = UrlRecord(RECORD_VERSION, fingerprint, "", host, segment)
            row = row or Row(State.ARCHIVED if archived else State.DONE, record)
        rows += [row] if row else []
    return rows


def _first(rows: Sequence[Row]) -> Row | None:
    """Return the one that is meant: others of this fingerprint were never to be filtered."""
    return next((row for row in rows if not row.record.dont_filter), None)


def _held(partition: Partition, data: bytes, acked: int, more: bytes) -> Row:
    if acked:
        return Row(State.DONE, decode(data), 0.0, more.decode())
    return timed_row(LEASED, data, float(more) - partition.shift_s)


async def _seek_queued(session: Session, partition: Partition, segment: str, needle: bytes, host: str) -> Row | None:
    at: Sequence[Any] = ("", "", 0)
    while True:
        data, *at = await session.read(partition, "seek", needle, segment, host, *at)
        row = _first([Row(State.QUEUED, decode(data))] if data else [])
        if row or not at[0]:
            return row


async def _seek_asleep(session: Session, partition: Partition, segment: str, needle: bytes) -> Row | None:
    cursor = b"0"
    while True:
        cursor, found = await session.read(partition, "seek_asleep", needle, segment, cursor)
        row = _first([timed_row(ASLEEP, data, float(due) - partition.shift_s) for data, due in found])
        if row or cursor == b"0":
            return row


def host_view(said: Sequence[Any], policy: Mapping[str, float], shift_s: float, *, runs: bool) -> HostView:
    """Return what a partition says of a host."""
    name, queued, flying, ready, paused, delay, started, address, known, asking, status, robots_at, *group = said

    def ours(at: bytes) -> float:
        return float(at) - shift_s if float(at) else 0.0

    shared = None
    if policy.get("resolves"):
        ready_at, in_flight, hosts = group
        places, delay_s = int(policy["ip_places"]), policy["ip_delay"]
        shared = AddressView(address.decode(), ours(ready_at), in_flight, places, delay_s, hosts, ours(known))
    return HostView(
        name.decode(),
        queued,
        flying,
        ours(ready),
        ours(paused),
        float(delay),
        ours(started),
        address.decode(),
        status,
        float(robots_at),
        int(policy.get("places", 0)) if runs else 0,
        bool(asking),
        shared,
    )
