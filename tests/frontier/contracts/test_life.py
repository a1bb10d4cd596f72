"""Every back end obeys the life of a URL (C6, F6): what the table in `frontier.core.states` allows happens, the rest
does not.

A URL is brought into each state; then each event is tried on it, as far as anybody can: with a token that was never
lent or is no longer held, at a time that is not due, with a selection that should not reach it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import Lease, Selection, UrlRecord
from lycosa.frontier.core.states import EXPIRIES_MAX, TRANSITIONS, Event, Policy, State
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.memory import memory_frontier
from lycosa.frontier.operations import LocalOperations

HOST = "http://a.example:80"
SEGMENT = "monday"
LEASE_S = 60.0
POLICY = Policy(robots=False, lease_s=LEASE_S)
T0 = 1_000.0
DUE = T0 + 100.0
"""When what is delayed or to be tried again is due; everything else happens at T0."""

BACK_ENDS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: memory_frontier(POLICY),
    "embedded": lambda path: embedded_frontier(path, POLICY),
}
RECORD = UrlRecord(1, 7, "http://a.example/7", HOST, SEGMENT)
LATER = UrlRecord(1, 7, "http://a.example/7", HOST, SEGMENT, not_before=DUE)
NEVER_LENT = Lease(1 << 60, RECORD, DUE)
OUTSIDE = [pair for pair in ((state, event) for state in State for event in Event) if pair not in TRANSITIONS]


class Url(NamedTuple):
    """One URL of a frontier, with the last lease there was of it."""

    frontier: Any
    operations: Any
    leases: list[Lease]

    async def state(self) -> State:
        """Return the state in which it is found, which must be the one in which it is listed."""
        found = [row.state for row in await self.operations.find(RECORD.fingerprint, HOST)]
        listed, after = await self.operations.rows(Selection(), "", 10)
        assert (after, [row.state for row in listed]) == (None, found)
        assert len(found) <= 1
        return State(found[0]) if found else State.NEW

    async def counts(self) -> tuple[Any, Any]:
        """Return all counts but that of the look-ups."""
        return (await self.frontier.stats())._replace(lookups=0, offered=0), await self.operations.segments()

    async def lend(self, now: float) -> bool:
        """LEASE, or DUE and LEASE when the time has come."""
        lent = await self.frontier.lease(10, now)
        self.leases.extend(lent)
        return bool(lent)

    async def settled(self, how: str, *arguments: Any) -> bool:
        """Come back with the last lease there was."""
        lease = self.leases[-1] if self.leases else NEVER_LENT
        return await getattr(self.frontier, how)(lease, *arguments)  # type: ignore[no-any-return]

    async def queued_again(self, state: State) -> bool:
        """Queue again what is in this state."""
        return (await self.operations.requeue(Selection(states=(state,)), None, T0, "", 10)).requeued > 0  # type: ignore[no-any-return]

    async def archived(self) -> bool:
        """Archive its segment, which is not there before anything was pushed."""
        try:
            return await self.operations.archive(SEGMENT)  # type: ignore[no-any-return]
        except UsageError:
            return False

    async def happens(self, event: Event) -> bool:
        """Try the event on it. Return whether it was accepted; nobody is told of what is due."""
        match event:
            case Event.PUSH:
                return await self.frontier.push([RECORD]) > 0  # type: ignore[no-any-return]
            case Event.PUSH_LATER:
                return await self.frontier.push([LATER]) > 0  # type: ignore[no-any-return]
            case Event.DUE:
                before = await self.state()
                assert await self.frontier.lease(0, DUE) == []
                return await self.state() != before
            case Event.LEASE:
                return await self.lend(T0)
            case Event.ACK:
                return await self.settled("ack", "200", (), T0)
            case Event.NACK:
                return await self.settled("nack", "503", DUE, T0)
            case Event.GIVE_UP:
                return await self.settled("nack", "503", None, T0)
            case Event.RELEASE:
                return await self.settled("release", T0)
            case Event.EXPIRE | Event.EXPIRE_LAST:
                return await self.frontier.expire(DUE) > 0  # type: ignore[no-any-return]
            case Event.REQUEUE:
                return await self.queued_again(State.DEAD)
            case Event.REFRESH:
                return await self.queued_again(State.DONE)
            case Event.ARCHIVE:
                return await self.archived()

    async def tired(self) -> None:
        """Let its leases expire as often as it may, and lend it once more."""
        for _ in range(EXPIRIES_MAX - 1):
            assert await self.lend(T0)
            assert await self.frontier.expire(DUE) == 1


WAYS = {
    State.NEW: (),
    State.QUEUED: (Event.PUSH, Event.LEASE, Event.RELEASE),
    State.DELAYED: (Event.PUSH_LATER,),
    State.LEASED: (Event.PUSH, Event.LEASE),
    State.RETRY: (Event.PUSH, Event.LEASE, Event.NACK),
    State.DONE: (Event.PUSH, Event.LEASE, Event.ACK),
    State.DEAD: (Event.PUSH, Event.LEASE, Event.GIVE_UP),
    State.ARCHIVED: (Event.PUSH, Event.LEASE, Event.ACK, Event.ARCHIVE),
}
"""How a URL comes into each state."""


@pytest.fixture(params=BACK_ENDS)
def play(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Callable[[Url], Awaitable[None]]], None]]:
    """A function that plays a story with a URL that was never pushed."""
    frontier = BACK_ENDS[request.param](tmp_path / "frontier")
    yield lambda story: asyncio.run(story(Url(frontier, LocalOperations(frontier), [])))  # type: ignore[arg-type]
    asyncio.run(frontier.close())


async def bring(url: Url, state: State) -> None:
    for event in WAYS[state]:
        assert await url.happens(event)
    assert await url.state() is state


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_what_is_in_the_table_happens(play: Callable[..., None], state: State, event: Event) -> None:
    async def story(url: Url) -> None:
        if event is Event.EXPIRE_LAST:
            assert await url.happens(Event.PUSH)
            await url.tired()
            assert await url.lend(T0)
        else:
            await bring(url, state)
        assert await url.happens(event)
        assert await url.state() is TRANSITIONS[state, event]
        assert await url.operations.verify(lambda _: None) == []

    play(story)


@pytest.mark.parametrize(("state", "event"), OUTSIDE)
def test_what_is_not_in_the_table_is_refused(play: Callable[..., None], state: State, event: Event) -> None:
    async def story(url: Url) -> None:
        await bring(url, state)
        before = await url.counts()
        assert not await url.happens(event)
        assert await url.state() is state
        assert await url.counts() == before

    play(story)


def test_the_dead_are_archived_like_the_done(play: Callable[..., None]) -> None:
    async def story(url: Url) -> None:
        await bring(url, State.DEAD)
        assert await url.happens(Event.ARCHIVE)
        assert not await url.happens(Event.REQUEUE)
        assert await url.state() is State.ARCHIVED

    play(story)
