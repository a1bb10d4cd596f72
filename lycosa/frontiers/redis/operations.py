"""What `lycosa frontier` does to a crawl in Redis: `ports.FrontierOperations`.

A URL that is done is only a fingerprint here, so it can be found but not listed, and not queued again. Listings read
the structures slice by slice with Redis' own cursors.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from lycosa.core.frontier import State
from lycosa.core.model import (
    FrontierStats,
    HostFacts,
    Moved,
    Row,
    Rows,
    SegmentState,
    SegmentView,
    Selection,
    UrlRecord,
)
from lycosa.core.rows import Matcher
from lycosa.core.segments import order, starts_at
from lycosa.frontiers.redis.frontier import RedisFrontier
from lycosa.frontiers.redis.looking import (
    DEAD,
    DONE,
    dead_rows,
    reasons_by_segment,
    segment_counts,
    segment_states,
    sleeping_rows,
)

SLICE = 500
"""Elements read at a time."""


class RedisOperations:
    """See `ports.FrontierOperations`; every method here is documented there.

    `commit` makes things durable where a crawl runs here, together with its items; `changed` is called when there may
    be something to lend; `paused` says why the crawl lends nothing.
    """

    def __init__(
        self,
        frontier: RedisFrontier,
        commit: Callable[[], Awaitable[None]] | None = None,
        changed: Callable[[], None] = lambda: None,
        paused: Callable[[], str] = lambda: "",
    ) -> None:
        self._frontier = frontier
        self._commit = commit
        self._changed = changed
        self._paused = paused

    async def stats(self) -> FrontierStats:
        """Count."""
        return (await self._frontier.stats())._replace(paused=self._paused())

    async def next_due(self, now: float) -> float | None:
        """Ask."""
        await self._frontier.stats()
        return self._frontier.next_ready(now)

    async def push(self, records: Sequence[UrlRecord]) -> int:
        """Queue what is new."""
        pushed = await self._frontier.push(records)
        self._changed()
        return pushed

    async def commit(self) -> None:
        """Commit."""
        await (self._commit() if self._commit else self._frontier.commit({}))

    async def host_facts(self, host: str) -> HostFacts | None:
        """Look it up."""
        return await self._frontier.host_facts(host)

    async def segments(self) -> list[SegmentView]:
        """Describe them."""
        states = await segment_states(self._frontier.session)
        counts = await segment_counts(self._frontier.session)
        reasons, dead = (
            await reasons_by_segment(self._frontier.session, DONE),
            await reasons_by_segment(self._frontier.session, DEAD),
        )
        live = sorted((name for name in states if states[name] != SegmentState.DROPPED), key=order)
        gone = sorted((name for name in states if states[name] == SegmentState.DROPPED), key=order)
        views = [
            _view(name, states[name], counts.get(name, {}), reasons.get(name, {}), dead.get(name, {})) for name in live
        ]
        return views + [SegmentView(name, SegmentState.DROPPED, starts_at(name)) for name in gone]

    async def rows(self, selection: Selection, after: str, limit: int) -> Rows:
        """Read what is dead or asleep."""
        wanted = Matcher(selection).matches
        rows = [row async for row in self._ended_or_asleep(selection)]
        return Rows([row for row in rows if wanted(row)][:limit], None)

    async def find(self, fingerprint: int, host: str = "") -> list[Row]:
        """Look it up among the dead."""
        rows = [row async for row in self._ended_or_asleep(Selection(("dead",)))]
        return [row for row in rows if row.record.fingerprint == fingerprint]

    async def requeue(self, selection: Selection, into: str | None, now: float, after: str, limit: int) -> Moved:
        """Queue the dead again."""
        return Moved(0, None)

    async def _ended_or_asleep(self, selection: Selection) -> AsyncIterator[Row]:
        if not selection.states or State.DEAD in selection.states:
            async for row in dead_rows(self._frontier.session):
                yield row
        if not selection.states or {State.DELAYED, State.RETRY} & set(selection.states):
            async for row in sleeping_rows(self._frontier.session):
                yield row


def _view(
    name: str, state: str, counts: Mapping[str, int], reasons: dict[str, int], dead: dict[str, int]
) -> SegmentView:
    told = {key: counts.get(key, 0) for key in ("queued", "leased", "delayed", "done", "dead")}
    busy = told["queued"] or told["leased"] or told["delayed"] or counts.get("uncommitted", 0)
    word = SegmentState(state)
    if word is SegmentState.OPEN and not busy:
        word = SegmentState.FINISHED
    return SegmentView(name, word, starts_at(name), **told, reasons=reasons, dead_reasons=dead)
