"""A frontier in memory, for crawls that need not be resumed, and as the baseline for the cost of durability.

`commit` stores the positions in memory and archives finished segments.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from math import inf

from msgspec.structs import replace

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import (
    FrontierStats,
    HostView,
    RequeueResult,
    Row,
    RowSlice,
    SegmentState,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.rows import Matcher
from lycosa.frontier.core.segments import is_followed, latest_starts, segment_order, starts_at, total_stats
from lycosa.frontier.core.states import Event, Policy, State, push_event, requeue, step
from lycosa.frontier.local import NOT_READY, HostWork, LocalFrontier, SavedHost
from lycosa.frontier.slices import next_slice, parse_cursor
from lycosa.http.core.model import Validators

Key = tuple[int, int]
"""(negated priority, arrival number): the sort key in the queue of the host."""

PROMOTE_MAX = 1000


@dataclass(slots=True)
class StoredUrl:
    """A URL and its state. A leased URL stays QUEUED."""

    record: UrlRecord
    state: State
    at: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class MemorySegment:
    """A segment: its URLs by arrival number, the arrival numbers by fingerprint, and one queue per host."""

    name: str
    number: int
    rank: float
    started: bool = False
    state: SegmentState = SegmentState.OPEN
    urls: dict[int, StoredUrl] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    queues: dict[str, list[Key]] = field(default_factory=dict)
    counts: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    reasons: Counter[str] = field(default_factory=Counter)
    dead_reasons: Counter[str] = field(default_factory=Counter)

    def transition(self, arrival: int, event: Event) -> StoredUrl:
        url = self.urls[arrival]
        self.counts[url.state] -= 1
        url.state = step(State.LEASED if url.state is State.QUEUED else url.state, event)
        self.counts[url.state] += 1
        return url

    def count(self, url: StoredUrl, by: int = 1) -> None:
        reasons = self.dead_reasons if url.state is State.DEAD else self.reasons
        reasons[url.reason] += by
        if not reasons[url.reason]:
            del reasons[url.reason]


class MemoryFrontierStore:
    """Implements `local.FrontierStore`."""

    def __init__(self) -> None:
        self._live: dict[str, MemorySegment] = {}
        self._dropped: list[str] = []
        self._delayed: list[tuple[float, int, str]] = []
        self._hosts: dict[str, SavedHost] = {}
        self._positions: dict[str, int] = {}
        self._arrivals = self._leased = 0
        self.run_at = inf

    def add(self, record: UrlRecord) -> float | None:
        segment = self._segment(record.segment)
        if segment is None or segment.state is not SegmentState.OPEN:
            return None
        if not record.dont_filter and record.fingerprint in segment.seen:
            return None
        self._arrivals += 1
        if not record.dont_filter:
            segment.seen[record.fingerprint] = self._arrivals
        state = step(State.NEW, push_event(record))
        segment.urls[self._arrivals] = StoredUrl(record, state, record.not_before)
        segment.counts[state] += 1
        if state is State.DELAYED:
            heappush(self._delayed, (record.not_before, self._arrivals, segment.name))
            return NOT_READY
        return self._enqueue(segment, self._arrivals, record)

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        live = self._live.get(segment)
        return set(fingerprints) & live.seen.keys() if live else set()

    def stored(self, segment: str, prefix: bytes) -> list[bytes]:
        return []

    def take(self, host: str) -> tuple[Key, UrlRecord, float | None] | None:
        for segment in self._serving():
            queue = segment.queues.get(host)
            if not queue:
                continue
            key = heappop(queue)
            self._leased += 1
            next_rank = next((each.rank for each in self._serving() if each.queues.get(host)), None)
            return key, segment.urls[key[1]].record, next_rank
        return None

    def peek(self, host: str) -> UrlRecord | None:
        queues = ((segment, segment.queues.get(host)) for segment in self._serving())
        return next((segment.urls[queue[0][1]].record for segment, queue in queues if queue), None)

    def put_back(self, key: Key, record: UrlRecord) -> float:
        self._leased -= 1
        segment = self._live.get(record.segment)
        if segment is None:
            return NOT_READY
        segment.urls[key[1]].record = record
        return self._enqueue(segment, key[1], record)

    def mark_done(self, key: Key, record: UrlRecord, reason: str, now: float, validators: Validators | None) -> None:
        self._end(key, replace(record, validators=validators), Event.ACK, reason, now)

    def mark_retry(self, key: Key, record: UrlRecord) -> None:
        if self._end(key, record, Event.NACK, "", record.not_before):
            heappush(self._delayed, (record.not_before, key[1], record.segment))

    def mark_dead(self, key: Key, record: UrlRecord, reason: str, now: float) -> None:
        self._end(key, record, Event.GIVE_UP, reason, now)

    def promote_due(self, now: float) -> Sequence[HostWork]:
        work: list[HostWork] = []
        for segment in self._live.values():
            if not segment.started and segment.rank <= now:
                segment.started = True
                work += [HostWork(host, segment.rank, len(queue)) for host, queue in segment.queues.items() if queue]
        while self._delayed and self._delayed[0][0] <= now and len(work) < PROMOTE_MAX:
            _, arrival, name = heappop(self._delayed)
            live = self._live.get(name)
            if live is not None:
                record = self._promote(live, arrival)
                rank = self._enqueue(live, arrival, record)
                work += [HostWork(record.host, rank, 1)] if rank != NOT_READY else []
        return work

    def next_due(self) -> float | None:
        times = [each.rank for each in self._live.values() if not each.started and each.counts[State.QUEUED]]
        return min([*times, *(at for at, _, _ in self._delayed[:1])], default=None)

    def load_host(self, host: str) -> SavedHost:
        return self._hosts.get(host, SavedHost())

    def save_host(self, host: str, saved: SavedHost) -> None:
        facts = saved.facts or self.load_host(host).facts
        self._hosts[host] = saved._replace(facts=facts)

    def commit(self, positions: Mapping[str, int]) -> None:
        self._positions.update(positions)
        latest = latest_starts((segment.name for segment in self._serving()), self.run_at)
        for segment in self._live.values():
            if is_followed(segment.name, latest):
                self.archive(segment.name)

    def positions(self) -> dict[str, int]:
        return dict(self._positions)

    def stats(self) -> FrontierStats:
        return total_stats(self.segments(), self._leased)

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        urls = (url for segment in self._live.values() for url in segment.urls.values())
        return [(url.record, url.reason) for url in urls if url.state is State.DEAD][:limit]

    def close(self) -> None: ...

    def segments(self) -> list[SegmentView]:
        dropped = [SegmentView(name, SegmentState.DROPPED, starts_at(name)) for name in self._dropped]
        return [_view(segment) for segment in self._live.values()] + dropped

    def hosts(self, after: str, limit: int) -> list[HostView]:
        queued: dict[str, int] = {}
        for segment in self._live.values():
            for host, queue in segment.queues.items():
                queued[host] = queued.get(host, 0) + len(queue)
        names = sorted(name for name in {*self._hosts, *queued} if name > after)[:limit]
        return [self._host_view(name, queued.get(name, 0)) for name in names]

    def rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        found = next_slice(self._rows_from(cursor), Matcher(selection).matches, limit)
        return RowSlice([row for _, row in found.rows], found.next_cursor)

    def find(self, fingerprint: int, host: str = "") -> list[Row]:
        found = [(segment, segment.seen.get(fingerprint)) for segment in self._live.values()]
        return [_row(segment, segment.urls[arrival]) for segment, arrival in found if arrival is not None]

    def requeue(
        self, selection: Selection, into: str | None, cursor: str, limit: int
    ) -> tuple[RequeueResult, Sequence[HostWork]]:
        found = next_slice(self._rows_from(cursor), Matcher(selection).matches, limit)
        work: list[HostWork] = []
        for at, row in found.rows:
            if row.state in (State.DONE, State.DEAD, State.ARCHIVED):
                rank = self._requeue_row(at, row, into)
                work += [HostWork(row.record.host, rank, 1)] if rank is not None else []
        return RequeueResult(len(work), found.next_cursor), [each for each in work if each.rank != NOT_READY]

    def requeue_ended(self, fingerprint: int) -> Sequence[HostWork]:
        work: list[HostWork] = []
        for segment in self._live.values():
            arrival = segment.seen.get(fingerprint, 0)
            url = segment.urls.get(arrival)
            if url is not None and url.state in (State.DONE, State.DEAD):
                rank = self._requeue_row(f"{segment.number}:{arrival:016x}", _row(segment, url), None)
                work += [HostWork(url.record.host, rank, 1)] if rank is not None else []
        return work

    def archive(self, segment: str) -> bool:
        live = self._live.get(segment)
        if live is None or _view(live).state is not SegmentState.FINISHED:
            return False
        live.state = SegmentState.ARCHIVED
        return True

    def drop(self, segment: str) -> int:
        live = self._live.pop(segment, None)
        if live is None:
            raise UsageError(f"there is no segment {segment!r}: lycosa frontier segments lists them")
        self._dropped = sorted([*self._dropped, segment], key=segment_order)
        self._delayed = [each for each in self._delayed if each[2] != segment]
        heapify(self._delayed)
        return len(live.urls)

    def verify(self, report: Callable[[str], None]) -> list[str]:
        return []

    def compact(self) -> tuple[int, int]:
        return 0, 0

    def _segment(self, name: str) -> MemorySegment | None:
        found = self._live.get(name)
        if found is None and name not in self._dropped:
            rank = starts_at(name)
            found = MemorySegment(name, len(self._live) + len(self._dropped), rank, started=rank <= 0)
            self._live[name] = found
            self._live = {each: self._live[each] for each in sorted(self._live, key=segment_order)}
        return found

    def _serving(self) -> Iterator[MemorySegment]:
        return (segment for segment in self._live.values() if segment.started)

    def _enqueue(self, segment: MemorySegment, arrival: int, record: UrlRecord) -> float:
        heappush(segment.queues.setdefault(record.host, []), (-record.priority, arrival))
        return segment.rank if segment.started else NOT_READY

    def _promote(self, segment: MemorySegment, arrival: int) -> UrlRecord:
        url = segment.urls[arrival]
        segment.counts[url.state] -= 1
        url.state, url.at = step(url.state, Event.DUE), 0.0
        segment.counts[url.state] += 1
        return url.record

    def _end(self, key: Key, record: UrlRecord, event: Event, reason: str, at: float) -> bool:
        self._leased -= 1
        segment = self._live.get(record.segment)
        if segment is None:  # dropped
            return False
        url = segment.transition(key[1], event)
        url.record, url.reason, url.at = record, reason, at
        if reason:
            segment.count(url)
        return True

    def _requeue_row(self, cursor: str, row: Row, into: str | None) -> float | None:
        """Queue a finished URL again, or a copy of it in segment `into`. Return its rank; None if it is refused."""
        record = requeue(row.record)
        if into is not None:
            return self.add(replace(record, segment=into, dont_filter=False))
        segment = self._live[record.segment]
        if segment.state is not SegmentState.OPEN:
            return None
        arrival = _arrival(parse_cursor(cursor)[1])
        segment.counts[segment.urls[arrival].state] -= 1
        segment.count(segment.urls[arrival], -1)
        event = Event.REQUEUE if row.state == State.DEAD else Event.REFRESH
        # A new arrival number puts the URL at the end of its queue.
        self._arrivals += 1
        del segment.urls[arrival]
        segment.urls[self._arrivals] = StoredUrl(record, step(State(row.state), event))
        segment.counts[State.QUEUED] += 1
        if not record.dont_filter:
            segment.seen[record.fingerprint] = self._arrivals
        return self._enqueue(segment, self._arrivals, record)

    def _rows_from(self, cursor: str) -> Iterator[tuple[str, Row]]:
        number, key = parse_cursor(cursor)
        for segment in sorted(self._live.values(), key=lambda each: each.number):
            after = _arrival(key) if segment.number == number else 0
            if segment.number >= number:
                for each in sorted(arrival for arrival in segment.urls if arrival > after):
                    yield f"{segment.number}:{each:016x}", _row(segment, segment.urls[each])

    def _host_view(self, name: str, queued: int) -> HostView:
        saved = self.load_host(name)
        facts = saved.facts
        return HostView(
            name,
            queued,
            blocked_until=saved.blocked_until,
            started_at=saved.started_at,
            address=saved.address,
            robots_status=facts.robots_status if facts else -1,
            robots_at=facts.robots_at if facts else 0.0,
        )


def _row(segment: MemorySegment, url: StoredUrl) -> Row:
    state = url.state
    if segment.state is SegmentState.ARCHIVED and state in (State.DONE, State.DEAD):
        state = step(state, Event.ARCHIVE)
    return Row(state, url.record, url.at, url.reason)


def _view(segment: MemorySegment) -> SegmentView:
    queued, done, dead = (segment.counts[state] for state in (State.QUEUED, State.DONE, State.DEAD))
    delayed = segment.counts[State.DELAYED] + segment.counts[State.RETRY]
    state = segment.state
    if state is SegmentState.OPEN and not (queued or delayed):
        state = SegmentState.FINISHED
    reasons = dict(segment.reasons), dict(segment.dead_reasons)
    return SegmentView(segment.name, state, segment.rank, queued, 0, delayed, done, dead, *reasons)


def _arrival(key: bytes) -> int:
    return int.from_bytes(key, "big")


def memory_frontier(policy: Policy) -> LocalFrontier[Key]:
    """Return an empty frontier."""
    return LocalFrontier(policy, MemoryFrontierStore())
