"""What `lycosa frontier` does to a crawl in Redis: `frontier.ports.FrontierOperations`.

It needs no worker: whoever has a session may look, and change things. Of a URL that is done only the fingerprint is
kept, unless the crawl was begun with `keep_done`: then it can be found, but neither listed nor queued again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
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
from lycosa.frontier.redis.admin.counts import facts_of, segment_views, stats_of
from lycosa.frontier.redis.admin.find import find, host_view
from lycosa.frontier.redis.admin.listing import ENDED, KINDS, Slice, next_slice
from lycosa.frontier.redis.admin.memory import compacted
from lycosa.frontier.redis.admin.verify import faults_of
from lycosa.frontier.redis.lanes import encode, fingerprint_of, lane_of
from lycosa.frontier.redis.worker.partition import pushed
from lycosa.frontier.redis.worker.session import Session

HOSTS_MAX = 200
"""Hosts of which one call tells."""

PUSHED_MAX = 500
"""Records that one call queues."""

POLICY = (b"places", b"resolves", b"ip_places", b"ip_delay")

CLEARING: dict[str, Any] = {"clear": "", "clear_asleep": 0, "clear_seen": 0}
"""What clears a dropped segment, and where it begins."""

NOT_KEPT = (
    "of what is done this crawl keeps only that it is: to queue it again (requeue --done, --refresh), "
    "begin a crawl with keep_done=true"
)


async def nothing() -> None:
    """What there is to be made durable where no crawl runs."""


async def forget_nothing(_: str) -> None:
    """What is held of a segment where no crawl runs."""


class RedisOperations:
    """See `frontier.ports.FrontierOperations`; every method here is documented there.

    Where a crawl runs, `commit` makes things durable together with its items, `changed` is called when there may be
    something to lend, `paused` says why the crawl lends nothing, and `forget` gives up what it holds of a segment.
    Unless one `runs` somewhere, nobody knows how many transfers a host may have.
    """

    def __init__(
        self,
        session: Session,
        commit: Callable[[], Awaitable[None]] = nothing,
        changed: Callable[[], None] = lambda: None,
        paused: Callable[[], str] = lambda: "",
        forget: Callable[[str], Awaitable[None]] = forget_nothing,
        *,
        runs: bool = True,
    ) -> None:
        self._session = session
        self._changed = changed
        self._paused = paused
        self._forget = forget
        self._runs = runs
        self._commit = commit

    async def stats(self) -> FrontierStats:
        """Count."""
        await self._session.send()
        seen = await self._session.outlook()
        return (await stats_of(self._session, hosts=seen.hosts))._replace(paused=self._paused())

    async def next_due(self, now: float) -> float | None:
        """Ask."""
        await self._session.send()
        await self._session.outlook()
        dues = [(each.due, each.shift_s) for each in self._session.partitions if each.due is not None]
        return min((due - shift_s if due else due for due, shift_s in dues), default=None)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new. Raises `StorageFull`."""
        queued = 0
        for partition in self._session.partitions:
            mine = [record for record in records if self._session.of(record.host) is partition]
            for start in range(0, len(mine), PUSHED_MAX):
                part = mine[start : start + PUSHED_MAX]
                arguments = [each for record in part for each in pushed(record, partition.shift_s)]
                queued += (await self._session.read(partition, "push", len(part), *arguments))[1]
        self._changed()
        return queued

    async def commit(self) -> None:
        """Commit, if a crawl runs here; for all others what is done is done."""
        await self._commit()

    async def host(self, host: str) -> HostView | None:
        """Look it up."""
        await self._session.send()
        said = await self._session.read(self._session.of(host), "host", host)
        return (await self._views(said))[0] if said else None

    async def host_facts(self, host: str) -> HostFacts | None:
        """Look it up."""
        return await facts_of(self._session, host)

    async def segments(self) -> list[SegmentView]:
        """Describe them."""
        await self._session.send()
        return await segment_views(self._session)

    async def hosts(self, after: str, limit: int) -> list[HostView]:
        """Merge those of all partitions."""
        await self._session.send()
        limit = min(limit, HOSTS_MAX)
        said = await self._session.read_all("hosts", after, limit)
        return await self._views(islice(merge(*said, key=lambda each: each[0]), limit))

    async def rows(self, selection: Selection, after: str, limit: int) -> RowSlice:
        """Read stretch by stretch."""
        if not after:
            await self._settle()
        found = await next_slice(self._session, selection, after, limit)
        return RowSlice([each.row for each in found.found], found.after)

    async def find(self, fingerprint: int, host: str = "", states: Collection[str] = ()) -> list[Row]:
        """Look it up; with `states` only among these."""
        await self._session.send()
        return await find(self._session, fingerprint, host, states)

    async def requeue(
        self, selection: Selection, into: str | None, now: float, after: str, limit: int
    ) -> RequeueResult:
        """List dead and done rows, and queue these again."""
        if not self._session.keeps_done and {State.DONE, State.ARCHIVED} & {*selection.states}:
            raise UsageError(NOT_KEPT)
        if not after:
            await self._settle()
        found = await next_slice(self._session, selection, after, limit, ENDED)
        moved = await self._again(found, into) if found.found else 0
        if moved:
            self._changed()
        return RequeueResult(moved, found.after)

    async def archive(self, segment: str) -> bool:
        """Archive it in all partitions, or in none."""
        await self._settle()
        view = find_segment(segment, await self.segments())
        if view.state is not SegmentState.FINISHED:
            return False
        archived = await self._session.read_all("archive", segment)
        if all(archived):
            return True
        for partition, is_archived in zip(self._session.partitions, archived, strict=True):
            if is_archived:
                await self._session.read(partition, "reopen", segment)
        return False

    async def drop(self, segment: str) -> int:
        """Drop it in all partitions, then clear what is left of it."""
        await self._session.send()
        find_segment(segment, await self.segments())
        dropped = sum(await self._session.read_all("drop", segment))
        await self._forget(segment)
        await self._session.send()
        for partition in self._session.partitions:
            for command, first in CLEARING.items():
                _, at = await self._session.read(partition, command, segment, first)
                while at:
                    _, at = await self._session.read(partition, command, segment, at)
        return int(dropped)

    async def verify(self, say: Callable[[str], None]) -> list[str]:
        """Compare what is counted with what is there, while the crawl goes on."""
        await self._settle()
        return await faults_of(self._session, say)

    async def compact(self) -> tuple[int, int]:
        """Let the server give memory back to its system."""
        return await compacted(self._session)

    async def _settle(self) -> None:
        """What was acked here is committed, in all partitions."""
        await self.commit()
        await self._session.send()

    async def _views(self, said: Any) -> list[HostView]:
        found = await self._session.ask("hgetall", self._session.partitions[0], "m")
        policy = {name.decode(): float(value) for name, value in found.items() if name in POLICY}
        return [host_view(each, policy, self._session.of(each[0].decode()).shift_s, runs=self._runs) for each in said]

    async def _again(self, found: Slice, into: str | None) -> int:
        arguments: list[object] = []
        for member, row in found.found:
            record = requeue(row.record)
            if into is not None:
                record = replace(record, segment=into, dont_filter=False)
            fingerprint = fingerprint_of(record) if into is not None else ""
            arguments += (member, record.host, lane_of(record), row.reason, fingerprint, encode(record))
        kind, segment, partition = KINDS[found.place.table], found.place.segment, found.place.partition
        told = kind, segment, int(into is not None), len(found.found)
        _, moved = await self._session.read(self._session.partitions[partition], "again", *told, *arguments)
        return int(moved)
