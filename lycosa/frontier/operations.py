"""What `lycosa frontier` does to a frontier of this process: `frontier.ports.FrontierOperations` over its shelf.

The shelf knows what is stored; who holds what and which host may be contacted when is asked of the frontier, whose
leases lie among the queued rows of the shelf.
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

Place = TypeVar("Place")
LeaseKey = tuple[str, int, bool]
LAST = "\U0010ffff"
"""The last character there is: nothing lies between what ends with it and its successor."""


class LocalOperations(Generic[Place]):
    """See `frontier.ports.FrontierOperations`; every method here is documented there.

    `commit` makes things durable where a crawl runs, together with its items; `changed` is called when there may be
    something to lend; `paused` says why the crawl lends nothing, "" when it does. Of a state on which no crawl `runs`
    nobody knows how many transfers a host may have.
    """

    def __init__(
        self,
        frontier: LocalFrontier[Place],
        commit: Callable[[], Awaitable[None]] | None = None,
        changed: Callable[[], None] = lambda: None,
        paused: Callable[[], str] = lambda: "",
        *,
        runs: bool = True,
    ) -> None:
        self._frontier = frontier
        self._shelf = frontier.shelf
        self._commit = commit
        self._changed = changed
        self._paused = paused
        self._runs = runs

    async def stats(self) -> FrontierStats:
        """Count."""
        return (await self._frontier.stats())._replace(paused=self._paused())

    async def next_due(self, now: float) -> float | None:
        """Ask."""
        return self._frontier.next_ready(now)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        pushed = await self._frontier.push(records)
        self._changed()
        return pushed

    async def commit(self) -> None:
        """Commit, with the items of the crawl if there is one."""
        await (self._commit() if self._commit else self._frontier.commit({}))

    async def host(self, host: str) -> HostView | None:
        """Look it up."""
        before = host[:-1] + chr(ord(host[-1]) - 1) + LAST
        stored = next(iter(self._shelf.hosts(before, 1)), None)
        return self._active(stored) if stored and stored.host == host else None

    async def host_facts(self, host: str) -> HostFacts | None:
        """Look it up."""
        return await self._frontier.host_facts(host)

    async def segments(self) -> list[SegmentView]:
        """Tell what is lent from what is queued."""
        lent = Counter(lease.record.segment for lease in self._leases())
        return [_with_lent(view, lent[view.name]) for view in self._shelf.segments()]

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        """Add what the workbench knows."""
        return [self._active(view) for view in self._shelf.hosts(after, limit)]

    async def rows(self, selection: Selection, after: str, limit: int) -> RowSlice:
        """Read the shelf, where what is lent lies among what is queued."""
        if selection.states == (State.LEASED,):
            return self._leased(selection, after, limit)
        states = selection.states
        if State.LEASED in states:
            states = (*states, State.QUEUED)
        found = self._shelf.rows(replace(selection, states=states), after, limit)
        rows = self._with_leases(found.rows)
        return RowSlice([row for row in rows if not selection.states or row.state in selection.states], found.after)

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        """Look it up."""
        rows = self._with_leases(self._shelf.find(fingerprint, host))
        return [row for row in rows if not states or row.state in states]

    async def requeue(
        self, selection: Selection, into: str | None, now: float, after: str, limit: int
    ) -> RequeueResult:
        """Queue again, and tell the workbench."""
        moved, work = self._shelf.requeue(selection, into, after, limit)
        self._frontier.found_work(work)
        if moved.requeued:
            self._changed()
        return moved

    async def archive(self, segment: str) -> bool:
        """Archive."""
        find_segment(segment, self._shelf.segments())
        return self._shelf.archive(segment)

    async def drop(self, segment: str) -> int:
        """Drop."""
        find_segment(segment, self._shelf.segments())
        return self._frontier.drop(segment)

    async def verify(self, say: Callable[[str], None]) -> list[str]:
        """Read everything, after what was acked is durable together with its items."""
        await self.commit()
        return self._shelf.verify(say)

    async def compact(self) -> tuple[int, int]:
        """Compact, after what was acked is durable together with its items."""
        await self.commit()
        return self._shelf.compact()

    def _leases(self) -> list[Lease]:
        return [lease for lease in self._frontier.leases() if lease.record.kind == RecordKind.PAGE]

    def _leased(self, selection: Selection, after: str, limit: int) -> RowSlice:
        """Return the leases that match, in the order of their tokens."""
        wanted = Matcher(selection).matches
        start = parse_cursor(after)[0]
        ahead = sorted((lease for lease in self._leases() if lease.token > start), key=lambda lease: lease.token)
        rows = [Row(State.LEASED, lease.record, lease.expires_at) for lease in ahead[:limit]]
        more = f"{ahead[limit - 1].token}:0" if len(ahead) > limit else None
        return RowSlice([row for row in rows if wanted(row)], more)

    def _with_leases(self, rows: Sequence[Row]) -> list[Row]:
        expiries = {_key(lease.record): lease.expires_at for lease in self._leases()}
        return [_lent(row, expiries) for row in rows]

    def _active(self, view: HostView) -> HostView:
        bench = self._frontier.workbench
        host = bench.hosts.get(view.host)
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
            concurrency=bench.policy.concurrency_per_host if self._runs else 0,
            preparing=host.preparing,
            shared=_shared(host, bench.policy) if bench.policy.limits_addresses else None,
        )


def _shared(host: Host, policy: Policy) -> AddressView:
    """Return the address of a host with its limits, and how far they are used up."""
    places, delay_s, group = policy.concurrency_per_ip, policy.delay_per_ip_s, host.group
    if group is None:
        return AddressView("", concurrency=places, delay_s=delay_s)
    return AddressView(
        group.address, group.ready_at, group.in_flight, places, delay_s, group.members, host.address_until
    )


def _with_lent(view: SegmentView, lent: int) -> SegmentView:
    return replace(view, queued=max(0, view.queued - lent), leased=lent) if lent else view


def _key(record: UrlRecord) -> LeaseKey:
    return record.segment, record.fingerprint, record.dont_filter


def _lent(row: Row, expiries: dict[LeaseKey, float]) -> Row:
    expires_at = expiries.get(_key(row.record)) if row.state == State.QUEUED else None
    return row if expires_at is None else replace(row, state=State.LEASED, at=expires_at)
