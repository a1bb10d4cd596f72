"""The operations of `lycosa frontier` on a frontier in this process.

The store lists leased rows as queued; this module adds leases and the activity of hosts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Generic, TypeVar

from msgspec.structs import replace

from lycosa.frontier.core.model import (
    AddressView,
    FrontierStats,
    HostFacts,
    HostView,
    Lease,
    RecordKind,
    RequeueResult,
    Row,
    RowSlice,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.rows import Matcher
from lycosa.frontier.core.scheduler import Host
from lycosa.frontier.core.segments import find_segment
from lycosa.frontier.core.states import Policy, State
from lycosa.frontier.local import LocalFrontier
from lycosa.frontier.slices import parse_cursor
from lycosa.http.core.robots import robots_from_response

Key = TypeVar("Key")
LeaseKey = tuple[str, int, bool]
LAST = "\U0010ffff"
"""The last Unicode character: PREFIX + LAST sorts after all other keys with this prefix."""


class LocalOperations(Generic[Key]):
    """Implements `frontier.ports.FrontierOperations`; `commit`, `on_change` and `paused` as in
    `SharedFrontier.operations`.

    With `runs` False, no crawl is running and the limits of hosts are unknown.
    """

    def __init__(
        self,
        frontier: LocalFrontier[Key],
        commit: Callable[[], Awaitable[None]] | None = None,
        on_change: Callable[[], None] = lambda: None,
        paused: Callable[[], str] = lambda: "",
        *,
        runs: bool = True,
    ) -> None:
        self._frontier = frontier
        self._store = frontier.store
        self._commit = commit
        self._on_change = on_change
        self._paused = paused
        self._runs = runs

    async def stats(self) -> FrontierStats:
        return (await self._frontier.stats())._replace(paused=self._paused())

    async def next_due(self, now: float) -> float | None:
        return self._frontier.next_ready(now)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        pushed = await self._frontier.push(records)
        self._on_change()
        return pushed

    async def commit(self) -> None:
        await (self._commit() if self._commit else self._frontier.commit({}))

    async def host(self, host: str) -> HostView | None:
        # The store lists the hosts after a given key: start from the greatest possible key before this host.
        before = host[:-1] + chr(ord(host[-1]) - 1) + LAST
        stored = next(iter(self._store.hosts(before, 1)), None)
        return self._with_activity(stored) if stored and stored.host == host else None

    async def host_facts(self, host: str) -> HostFacts | None:
        return await self._frontier.host_facts(host)

    async def segments(self) -> list[SegmentView]:
        leased = Counter(lease.record.segment for lease in self._leases())
        return [_with_leased(view, leased[view.name]) for view in self._store.segments()]

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        return [self._with_activity(view) for view in self._store.hosts(after, limit)]

    async def rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        if selection.states == (State.LEASED,):
            return self._leased_rows(selection, cursor, limit)
        states = selection.states
        if State.LEASED in states:
            states = (*states, State.QUEUED)
        found = self._store.rows(replace(selection, states=states), cursor, limit)
        rows = self._with_leases(found.rows)
        return RowSlice(
            [row for row in rows if not selection.states or row.state in selection.states], found.next_cursor
        )

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        rows = self._with_leases(self._store.find(fingerprint, host))
        return [row for row in rows if not states or row.state in states]

    async def requeue(
        self, selection: Selection, into: str | None, now: float, cursor: str, limit: int
    ) -> RequeueResult:
        result, work = self._store.requeue(selection, into, cursor, limit)
        self._frontier.add_work(work)
        if result.requeued:
            self._on_change()
        return result

    async def expire_robots(self, hosts: Sequence[str], now: float) -> int:
        expired = 0
        for host in hosts:
            facts = await self._frontier.host_facts(host)
            if facts is not None and robots_from_response(facts.robots, facts.robots_status).unreachable:
                await self._frontier.set_host_facts(host, replace(facts, robots_at=0.0), now)
                expired += 1
        return expired

    async def archive(self, segment: str) -> bool:
        find_segment(segment, self._store.segments())
        return self._store.archive(segment)

    async def drop(self, segment: str) -> int:
        find_segment(segment, self._store.segments())
        return self._frontier.drop(segment)

    async def verify(self, report: Callable[[str], None]) -> list[str]:
        """Commits before the check: the check writes everything to disk, and acks must not become durable before their
        items."""
        await self.commit()
        return self._store.verify(report)

    async def compact(self) -> tuple[int, int]:
        await self.commit()
        return self._store.compact()

    def _leases(self) -> list[Lease]:
        return [lease for lease in self._frontier.leases() if lease.record.kind == RecordKind.PAGE]

    def _leased_rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        matches = Matcher(selection).matches
        start = parse_cursor(cursor)[0]
        later = sorted((lease for lease in self._leases() if lease.token > start), key=lambda lease: lease.token)
        rows = [Row(State.LEASED, lease.record, lease.expires_at) for lease in later[:limit]]
        next_cursor = f"{later[limit - 1].token}:0" if len(later) > limit else None
        return RowSlice([row for row in rows if matches(row)], next_cursor)

    def _with_leases(self, rows: Sequence[Row]) -> list[Row]:
        expiries = {_key(lease.record): lease.expires_at for lease in self._leases()}
        return [_as_leased(row, expiries) for row in rows]

    def _with_activity(self, view: HostView) -> HostView:
        scheduler = self._frontier.scheduler
        host = scheduler.hosts.get(view.host)
        if host is None:
            return view
        return replace(
            view,
            in_flight=host.in_flight,
            ready_at=host.ready_at,
            blocked_until=max(view.blocked_until, host.blocked_until),
            started_at=max(view.started_at, host.started_at),
            delay_s=host.delay_s,
            address=host.address or view.address,
            concurrency=scheduler.policy.concurrency_per_host if self._runs else 0,
            preparing=host.preparing,
            shared=_address_view(host, scheduler.policy) if scheduler.policy.limits_addresses else None,
        )


def _address_view(host: Host, policy: Policy) -> AddressView:
    concurrency, delay_s, group = policy.concurrency_per_ip, policy.delay_per_ip_s, host.group
    if group is None:
        return AddressView("", concurrency=concurrency, delay_s=delay_s)
    return AddressView(
        group.address, group.ready_at, group.in_flight, concurrency, delay_s, group.members, host.address_until
    )


def _with_leased(view: SegmentView, leased: int) -> SegmentView:
    return replace(view, queued=max(0, view.queued - leased), leased=leased) if leased else view


def _key(record: UrlRecord) -> LeaseKey:
    return record.segment, record.fingerprint, record.dont_filter


def _as_leased(row: Row, expiries: dict[LeaseKey, float]) -> Row:
    expires_at = expiries.get(_key(row.record)) if row.state == State.QUEUED else None
    return row if expires_at is None else replace(row, state=State.LEASED, at=expires_at)
