"""A frontier in memory: for a crawl nobody needs to resume, and the measure of what durability costs.

Nothing outlives the process; `commit` only remembers the positions it is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

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
from lycosa.frontier.core.segments import segment_order, starts_at
from lycosa.frontier.core.states import Event, Policy, State, push_event, requeue, step
from lycosa.frontier.local import NOT_READY, HostWork, LocalFrontier, SavedHost
from lycosa.frontier.slices import next_slice, parse_cursor
from lycosa.http.core.model import Validators

Place = tuple[int, int]
"""Order within a host: highest priority first, then first come, first served."""

PROMOTE_MAX = 1000


@dataclass(slots=True)
class StoredUrl:
    """A URL and its state; a lent one is QUEUED."""

    record: UrlRecord
    state: State
    at: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class MemorySegment:
    """A segment: its URLs by number of arrival, which fingerprints it has, and the queues of its hosts."""

    name: str
    number: int
    rank: float
    started: bool = False
    state: SegmentState = SegmentState.OPEN
    urls: dict[int, StoredUrl] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    queues: dict[str, list[Place]] = field(default_factory=dict)
    counts: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    reasons: Counter[str] = field(default_factory=Counter)
    dead_reasons: Counter[str] = field(default_factory=Counter)

    def move(self, arrival: int, event: Event) -> StoredUrl:
        """Take a URL through a step of its life; lent ones count as queued."""
        entry = self.urls[arrival]
        self.counts[entry.state] -= 1
        state = State.LEASED if entry.state is State.QUEUED and event is not Event.LEASE else entry.state
        entry.state = step(state, event)
        self.counts[entry.state] += 1
        return entry

    def count(self, entry: StoredUrl, by: int = 1) -> None:
        """Count why a URL is done or dead."""
        reasons = self.dead_reasons if entry.state is State.DEAD else self.reasons
        reasons[entry.reason] += by
        if not reasons[entry.reason]:
            del reasons[entry.reason]


class MemoryFrontierStore:
    """See `local.Shelf`."""

    def __init__(self) -> None:
        self._live: dict[str, MemorySegment] = {}
        self._dropped: list[str] = []
        self._sleeping: list[tuple[float, int, str]] = []
        self._hosts: dict[str, SavedHost] = {}
        self._positions: dict[str, int] = {}
        self._arrivals = self._lent = 0

    def add(self, record: UrlRecord) -> float | None:
        """Store what is new."""
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
            heappush(self._sleeping, (record.not_before, self._arrivals, segment.name))
            return NOT_READY
        return self._enqueue(segment, self._arrivals, record)

    def known(self, segment: str, fingerprints: Sequence[int]) -> AbstractSet[int]:
        """Return those that were added before."""
        live = self._live.get(segment)
        return set(fingerprints) & live.seen.keys() if live else set()

    def take(self, host: str) -> tuple[Place, UrlRecord, float | None] | None:
        """Take the host's next record out of the oldest segment that has one."""
        for segment in self._serving():
            queue = segment.queues.get(host)
            if not queue:
                continue
            place = heappop(queue)
            self._lent += 1
            return place, segment.urls[place[1]].record, self._next_rank(host)
        return None

    def peek(self, host: str) -> UrlRecord | None:
        """Look it up."""
        queues = ((segment, segment.queues.get(host)) for segment in self._serving())
        return next((segment.urls[queue[0][1]].record for segment, queue in queues if queue), None)

    def put_back(self, place: Place, record: UrlRecord) -> float:
        """Queue it where it was."""
        self._lent -= 1
        segment = self._live.get(record.segment)
        if segment is None:
            return NOT_READY
        segment.urls[place[1]].record = record
        return self._enqueue(segment, place[1], record)

    def finish(self, place: Place, record: UrlRecord, reason: str, now: float, validators: Validators | None) -> None:
        """It is done."""
        self._end(place, replace(record, validators=validators), Event.ACK, reason, now)

    def retry(self, place: Place, record: UrlRecord) -> None:
        """Let it sleep."""
        if self._end(place, record, Event.NACK, "", record.not_before):
            heappush(self._sleeping, (record.not_before, place[1], record.segment))

    def bury(self, place: Place, record: UrlRecord, reason: str, now: float) -> None:
        """It is dead."""
        self._end(place, record, Event.GIVE_UP, reason, now)

    def wake(self, now: float) -> Sequence[HostWork]:
        """Queue what is due, and serve the segments that start."""
        woken: list[HostWork] = []
        for segment in self._live.values():
            if not segment.started and segment.rank <= now:
                segment.started = True
                woken += [HostWork(host, segment.rank, len(queue)) for host, queue in segment.queues.items() if queue]
        while self._sleeping and self._sleeping[0][0] <= now and len(woken) < PROMOTE_MAX:
            _, arrival, name = heappop(self._sleeping)
            sleeper = self._live.get(name)
            if sleeper is not None:
                record = self._awake(sleeper, arrival)
                rank = self._enqueue(sleeper, arrival, record)
                woken += [HostWork(record.host, rank, 1)] if rank != NOT_READY else []
        return woken

    def next_due(self) -> float | None:
        """The first sleeper's time, or that of a segment with work."""
        times = [each.rank for each in self._live.values() if not each.started and each.counts[State.QUEUED]]
        return min([*times, *(at for at, _, _ in self._sleeping[:1])], default=None)

    def recall_host(self, host: str) -> SavedHost:
        """Look it up."""
        return self._hosts.get(host, SavedHost())

    def remember_host(self, host: str, memory: SavedHost) -> None:
        """Keep it."""
        facts = memory.facts or self.recall_host(host).facts
        self._hosts[host] = memory._replace(facts=facts)

    def commit(self, positions: Mapping[str, int]) -> None:
        """Keep the positions, and archive what a later stretch of time has followed."""
        self._positions.update(positions)
        last = max((segment.rank for segment in self._serving()), default=0.0)
        for segment in self._live.values():
            if 0 < segment.rank < last:
                self.archive(segment.name)

    def positions(self) -> dict[str, int]:
        """Return them."""
        return dict(self._positions)

    def stats(self) -> FrontierStats:
        """Count."""
        views = self.segments()
        return FrontierStats(
            queued=sum(view.queued for view in views) - self._lent,
            delayed=sum(view.delayed for view in views),
            done=sum(view.done for view in views),
            dead=sum(view.dead for view in views),
            reasons=_sum(view.reasons for view in views),
            dead_reasons=_sum(view.dead_reasons for view in views),
        )

    def dead(self, limit: int) -> list[tuple[UrlRecord, str]]:
        """Return the first ones."""
        entries = (entry for segment in self._live.values() for entry in segment.urls.values())
        return [(entry.record, entry.reason) for entry in entries if entry.state is State.DEAD][:limit]

    def close(self) -> None:
        """Nothing to release."""

    def segments(self) -> list[SegmentView]:
        """Describe them."""
        dropped = [SegmentView(name, SegmentState.DROPPED, starts_at(name)) for name in self._dropped]
        return [_view(segment) for segment in self._live.values()] + dropped

    def hosts(self, after: str, limit: int) -> list[HostView]:
        """Describe them."""
        queued: dict[str, int] = {}
        for segment in self._live.values():
            for host, queue in segment.queues.items():
                queued[host] = queued.get(host, 0) + len(queue)
        names = sorted(name for name in {*self._hosts, *queued} if name > after)[:limit]
        return [self._host_view(name, queued.get(name, 0)) for name in names]

    def rows(self, selection: Selection, after: str, limit: int) -> RowSlice:
        """Read them segment by segment, in the order of arrival."""
        found = next_slice(self._entries(after), Matcher(selection).matches, limit)
        return RowSlice([row for _, row in found.rows], found.after)

    def find(self, fingerprint: int, host: str = "") -> list[Row]:
        """Look it up in every segment."""
        found = [(segment, segment.seen.get(fingerprint)) for segment in self._live.values()]
        return [_row(segment, segment.urls[arrival]) for segment, arrival in found if arrival is not None]

    def requeue(
        self, selection: Selection, into: str | None, after: str, limit: int
    ) -> tuple[RequeueResult, Sequence[HostWork]]:
        """Queue dead and done URLs again, or copies of them."""
        wanted = Matcher(selection).matches
        found = next_slice(self._entries(after), wanted, limit)
        moved: list[HostWork] = []
        for cursor, row in found.rows:
            if row.state in (State.DONE, State.DEAD, State.ARCHIVED):
                rank = self._again(cursor, row, into)
                moved += [HostWork(row.record.host, rank, 1)] if rank is not None else []
        return RequeueResult(len(moved), found.after), [work for work in moved if work.rank != NOT_READY]

    def archive(self, segment: str) -> bool:
        """Make it read only."""
        live = self._live.get(segment)
        if live is None or _view(live).state is not SegmentState.FINISHED:
            return False
        live.state = SegmentState.ARCHIVED
        return True

    def drop(self, segment: str) -> int:
        """Forget it."""
        live = self._live.pop(segment, None)
        if live is None:
            raise UsageError(f"there is no segment {segment!r}: lycosa frontier segments lists them")
        self._dropped = sorted([*self._dropped, segment], key=segment_order)
        self._sleeping = [sleeper for sleeper in self._sleeping if sleeper[2] != segment]
        heapify(self._sleeping)
        return len(live.urls)

    def verify(self, say: Callable[[str], None]) -> list[str]:
        """Nothing can be damaged in memory."""
        return []

    def compact(self) -> tuple[int, int]:
        """There is nothing on a disk."""
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

    def _next_rank(self, host: str) -> float | None:
        return next((segment.rank for segment in self._serving() if segment.queues.get(host)), None)

    def _enqueue(self, segment: MemorySegment, arrival: int, record: UrlRecord) -> float:
        heappush(segment.queues.setdefault(record.host, []), (-record.priority, arrival))
        return segment.rank if segment.started else NOT_READY

    def _awake(self, segment: MemorySegment, arrival: int) -> UrlRecord:
        entry = segment.urls[arrival]
        segment.counts[entry.state] -= 1
        entry.state, entry.at = step(entry.state, Event.DUE), 0.0
        segment.counts[entry.state] += 1
        return entry.record

    def _end(self, place: Place, record: UrlRecord, event: Event, reason: str, at: float) -> bool:
        self._lent -= 1
        segment = self._live.get(record.segment)
        if segment is None:
            return False
        entry = segment.move(place[1], event)
        entry.record, entry.reason, entry.at = record, reason, at
        if reason:
            segment.count(entry)
        return True

    def _again(self, cursor: str, row: Row, into: str | None) -> float | None:
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
        self._arrivals += 1
        del segment.urls[arrival]
        segment.urls[self._arrivals] = StoredUrl(record, step(State(row.state), event))
        segment.counts[State.QUEUED] += 1
        if not record.dont_filter:
            segment.seen[record.fingerprint] = self._arrivals
        return self._enqueue(segment, self._arrivals, record)

    def _entries(self, after: str) -> Iterator[tuple[str, Row]]:
        number, key = parse_cursor(after)
        for segment in sorted(self._live.values(), key=lambda each: each.number):
            behind = _arrival(key) if segment.number == number else 0
            if segment.number >= number:
                for each in sorted(arrival for arrival in segment.urls if arrival > behind):
                    yield f"{segment.number}:{each:016x}", _row(segment, segment.urls[each])

    def _host_view(self, name: str, queued: int) -> HostView:
        memory = self.recall_host(name)
        facts = memory.facts
        return HostView(
            name,
            queued,
            blocked_until=memory.blocked_until,
            started_at=memory.started_at,
            address=memory.address,
            robots_status=facts.robots_status if facts else -1,
            robots_at=facts.robots_at if facts else 0.0,
        )


def _row(segment: MemorySegment, entry: StoredUrl) -> Row:
    state = entry.state
    if segment.state is SegmentState.ARCHIVED and state in (State.DONE, State.DEAD):
        state = step(state, Event.ARCHIVE)
    return Row(state, entry.record, entry.at, entry.reason)


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


def _sum(counts: Iterator[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for each in counts:
        for reason, number in each.items():
            total[reason] = total.get(reason, 0) + number
    return total


def memory_frontier(policy: Policy) -> LocalFrontier[Place]:
    """Return an empty frontier."""
    return LocalFrontier(policy, MemoryFrontierStore())
