"""The operations of `lycosa frontier` on a crawl in Redis. They need no worker.

Without `keep_done` only the fingerprint of a done URL is stored: it can be found, but not listed or queued again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import islice
from typing import Any

from msgspec.structs import replace

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import (
    FrontierStats,
    HostFacts,
    HostView,
    RequeueResult,
    Row,
    RowSlice,
    SegmentState,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.frontier.core.segments import find_segment
from lycosa.frontier.core.states import State, requeue
from lycosa.frontier.redis.admin.archiving import archive, clear_dropped
from lycosa.frontier.redis.admin.counts import host_facts_of, read_stats, segment_views
from lycosa.frontier.redis.admin.find import find, host_view
from lycosa.frontier.redis.admin.listing import ENDED, TABLES, ListingSlice, next_slice
from lycosa.frontier.redis.admin.memory import purge_memory
from lycosa.frontier.redis.admin.revival import revive
from lycosa.frontier.redis.admin.verify import find_faults
from lycosa.frontier.redis.lanes import encode, fingerprint_of, lane_of
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.partition import Partition, push_arguments
from lycosa.frontier.redis.worker.session import Session
from lycosa.http.core.robots import robots_from_response

HOSTS_MAX = 200

PUSHED_MAX = 500
"""Maximum number of records that one script call queues."""

POLICY = (b"places", b"resolves", b"ip_places", b"ip_delay")

NOT_KEPT = (
    "this crawl does not keep done URLs: to queue them again (requeue --done, --refresh), "
    "start a crawl with keep_done=true"
)


async def _no_commit() -> None:
    pass


async def _no_leases(_: str) -> None:
    pass


@dataclass(eq=False, repr=False)
class RedisOperations:
    """Implements `frontier.ports.FrontierOperations`. `SharedFrontier.operations` explains `commit_worker` (there
    `commit`), `on_change` and `paused`.

    `forget` drops the worker's leases of a segment. With `runs` False, the crawl has no workers, and the limits of
    hosts are unknown.
    """

    session: Session
    commit_worker: Callable[[], Awaitable[None]] = _no_commit
    on_change: Callable[[], None] = lambda: None
    paused: Callable[[], str] = lambda: ""
    forget: Callable[[str], Awaitable[None]] = _no_leases
    runs: bool = field(kw_only=True, default=True)

    async def stats(self) -> FrontierStats:
        await self.session.send()
        status = await self.session.status()
        return (await read_stats(self.session, hosts=status.hosts))._replace(paused=self.paused())

    async def next_due(self, now: float) -> float | None:
        await self.session.send()
        await self.session.status()
        dues = [(each.due, each.clock_ahead_s) for each in self.session.partitions if each.due is not None]
        return min((due - ahead_s if due else due for due, ahead_s in dues), default=None)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Raises `StorageFull`."""
        queued = 0
        for partition in self.session.partitions:
            here = [record for record in records if self.session.partition_of(record.host) is partition]
            for start in range(0, len(here), PUSHED_MAX):
                part = here[start : start + PUSHED_MAX]
                arguments = [each for record in part for each in push_arguments(record, partition.clock_ahead_s)]
                queued += (await self._grow(partition, "push", len(part), *arguments))[1]
        self.on_change()
        return queued

    async def commit(self) -> None:
        """Commit as the worker does. Without a worker, operations are durable when their calls return."""
        await self.commit_worker()

    async def host(self, host: str) -> HostView | None:
        await self.session.send()
        reply = await self.session.operate(self.session.partition_of(host), "host", host)
        return (await self._host_views(reply))[0] if reply else None

    async def host_facts(self, host: str) -> HostFacts | None:
        return await host_facts_of(self.session, host)

    async def segments(self) -> list[SegmentView]:
        await self.session.send()
        return await segment_views(self.session)

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        await self.session.send()
        limit = min(limit, HOSTS_MAX)
        replies = await self.session.operate_all("hosts", after, limit)
        return await self._host_views(islice(merge(*replies, key=lambda each: each[0]), limit))

    async def rows(self, selection: Selection, cursor: str, limit: int) -> RowSlice:
        if not cursor:
            await self._flush()
        found = await next_slice(self.session, selection, cursor, limit)
        return RowSlice([each.row for each in found.rows], found.cursor)

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        await self.session.send()
        return await find(self.session, fingerprint, host, states)

    async def requeue(
        self, selection: Selection, into: str | None, now: float, cursor: str, limit: int
    ) -> RequeueResult:
        if not self.session.keep_done and {State.DONE, State.ARCHIVED} & {*selection.states}:
            raise UsageError(NOT_KEPT)
        if not cursor:
            await self._flush()
        found = await next_slice(self.session, selection, cursor, limit, ENDED)
        moved = await self._requeue_rows(found, into) if found.rows else 0
        if moved:
            self.on_change()
        return RequeueResult(moved, found.cursor)

    async def expire_robots(self, hosts: Sequence[str], now: float) -> int:
        expired = 0
        for host in hosts:
            facts = await host_facts_of(self.session, host)
            if facts is not None and robots_from_response(facts.robots, facts.robots_status).unreachable:
                data = encode(replace(facts, robots_at=0.0))
                await self.session.operate(self.session.partition_of(host), "expire_robots", host, data)
                expired += 1
        return expired

    async def archive(self, segment: str) -> bool:
        await self._flush()
        view = find_segment(segment, await self.segments())
        if view.state is not SegmentState.FINISHED:
            return False
        if await archive(self.session, segment):
            return True
        await self.session.operate_all("reopen", segment)
        return False

    async def drop(self, segment: str) -> int:
        await self.session.send()
        find_segment(segment, await self.segments())
        dropped = sum(await self.session.operate_all("drop", segment))
        await self.forget(segment)
        await self.session.send()
        await clear_dropped(self.session, segment)
        return int(dropped)

    async def verify(self, report: Callable[[str], None]) -> list[str]:
        await self._flush()
        return await find_faults(self.session, report)

    async def compact(self) -> tuple[int, int]:
        return await purge_memory(self.session)

    async def _flush(self) -> None:
        await self.commit()
        await self.session.send()

    async def _host_views(self, replies: Any) -> list[HostView]:
        session = self.session
        fields = await session.query("hgetall", session.partitions[0], Key.META)
        policy = {name.decode(): float(value) for name, value in fields.items() if name in POLICY}
        return [
            host_view(each, policy, session.partition_of(each[0].decode()).clock_ahead_s, runs=self.runs)
            for each in replies
        ]

    async def _requeue_rows(self, found: ListingSlice, into: str | None) -> int:
        arguments: list[object] = []
        for member, row in found.rows:
            record = requeue(row.record)
            if into is not None:
                record = replace(record, segment=into, dont_filter=False)
            fingerprint = fingerprint_of(record) if into is not None else ""
            arguments += (member, record.host, lane_of(record), row.reason, fingerprint, encode(record))
        table = found.table
        origin = (TABLES[table.table].name, table.segment, int(into is not None), len(found.rows))
        partition = self.session.partitions[table.partition]
        _, moved = await self._grow(partition, "requeue", *origin, *arguments)
        return int(moved)

    async def _grow(self, partition: Partition, operation: str, *arguments: object) -> Any:
        """Run an operation that queues records. First cancel the expiry of the crawl if it was announced."""
        while (reply := await self.session.operate(partition, operation, *arguments))[0] == b"expires":
            await revive(self.session)
        return reply
