"""Every back end follows the life of a URL (C6, F6): the transitions of `frontier.core.states` happen, others do not.

A URL is brought into each state; then each event is tried on it: with a token that was never granted or is no longer
valid, at a time that is not due, with a selection that should not match it.
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
"""When delayed URLs and retries are due; everything else happens at T0."""

BACK_ENDS: dict[str, Callable[[Path], Any]] = {
    "memory": lambda _: memory_frontier(POLICY),
    "embedded": lambda path: embedded_frontier(path, POLICY),
}
RECORD = UrlRecord(1, 7, "http://a.example/7", HOST, SEGMENT)
LATER = UrlRecord(1, 7, "http://a.example/7", HOST, SEGMENT, not_before=DUE)
NEVER_LEASED = Lease(1 << 60, RECORD, DUE)
NOT_ALLOWED = [pair for pair in ((state, event) for state in State for event in Event) if pair not in TRANSITIONS]


class Url(NamedTuple):
    """One URL of a frontier, with all its leases so far."""

    frontier: Any
    operations: Any
    leases: list[Lease]

    async def state(self) -> State:
        """Return the state of the URL according to `find`. The listing must have the same state."""
        found = [row.state for row in await self.operations.find(RECORD.fingerprint, HOST)]
        listed, after = await self.operations.rows(Selection(), "", 10)
        assert (after, [row.state for row in listed]) == (None, found)
        assert len(found) <= 1
        return State(found[0]) if found else State.NEW

    async def counts(self) -> tuple[Any, Any]:
        """Return all counts except those of look-ups."""
        return (await self.frontier.stats())._replace(lookups=0, offered=0), await self.operations.segments()

    async def lease(self, now: float) -> bool:
        """LEASE, or DUE and LEASE once the time has come."""
        leases = await self.frontier.lease(10, now)
        self.leases.extend(leases)
        return bool(leases)

    async def end_lease(self, method: str, *arguments: Any) -> bool:
        """Call a method of the frontier with the last lease."""
        lease = self.leases[-1] if self.leases else NEVER_LEASED
        return await getattr(self.frontier, method)(lease, *arguments)  # type: ignore[no-any-return]

    async def requeue(self, state: State) -> bool:
        """Queue the URL again if it is in this state."""
        return (await self.operations.requeue(Selection(states=(state,)), None, T0, "", 10)).requeued > 0  # type: ignore[no-any-return]

    async def archive(self) -> bool:
        """Archive its segment, which does not exist before the first push."""
        try:
            return await self.operations.archive(SEGMENT)  # type: ignore[no-any-return]
        except UsageError:
            return False

    async def apply(self, event: Event) -> bool:
        """Try the event. Return whether it was accepted; for DUE, whether the state changed."""
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
                return await self.lease(T0)
            case Event.ACK:
                return await self.end_lease("ack", "200", (), T0)
            case Event.NACK:
                return await self.end_lease("nack", "503", DUE, T0)
            case Event.GIVE_UP:
                return await self.end_lease("nack", "503", None, T0)
            case Event.RELEASE:
                return await self.end_lease("release", T0)
            case Event.EXPIRE | Event.EXPIRE_LAST:
                return await self.frontier.expire(DUE) > 0  # type: ignore[no-any-return]
            case Event.REQUEUE:
                return await self.requeue(State.DEAD)
            case Event.REFRESH:
                return await self.requeue(State.DONE)
            case Event.ARCHIVE:
                return await self.archive()

    async def expire_all_but_last(self) -> None:
        """Let leases of the URL expire as often as they may before the URL is dead."""
        for _ in range(EXPIRIES_MAX - 1):
            assert await self.lease(T0)
            assert await self.frontier.expire(DUE) == 1


EVENTS_TO = {
    State.NEW: (),
    State.QUEUED: (Event.PUSH, Event.LEASE, Event.RELEASE),
    State.DELAYED: (Event.PUSH_LATER,),
    State.LEASED: (Event.PUSH, Event.LEASE),
    State.RETRY: (Event.PUSH, Event.LEASE, Event.NACK),
    State.DONE: (Event.PUSH, Event.LEASE, Event.ACK),
    State.DEAD: (Event.PUSH, Event.LEASE, Event.GIVE_UP),
    State.ARCHIVED: (Event.PUSH, Event.LEASE, Event.ACK, Event.ARCHIVE),
}
"""The events that bring a URL into each state."""


@pytest.fixture(params=BACK_ENDS)
def run_scenario(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[[Callable[[Url], Awaitable[None]]], None]]:
    """A function that runs a scenario with a URL that was never pushed."""
    frontier = BACK_ENDS[request.param](tmp_path / "frontier")
    yield lambda scenario: asyncio.run(scenario(Url(frontier, LocalOperations(frontier), [])))  # type: ignore[arg-type]
    asyncio.run(frontier.close())


async def bring(url: Url, state: State) -> None:
    for event in EVENTS_TO[state]:
        assert await url.apply(event)
    assert await url.state() is state


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_every_transition_of_the_table_happens(run_scenario: Callable[..., None], state: State, event: Event) -> None:
    async def scenario(url: Url) -> None:
        if event is Event.EXPIRE_LAST:
            assert await url.apply(Event.PUSH)
            await url.expire_all_but_last()
            assert await url.lease(T0)
        else:
            await bring(url, state)
        assert await url.apply(event)
        assert await url.state() is TRANSITIONS[state, event]
        assert await url.operations.verify(lambda _: None) == []

    run_scenario(scenario)


@pytest.mark.parametrize(("state", "event"), NOT_ALLOWED)
def test_every_other_transition_is_refused(run_scenario: Callable[..., None], state: State, event: Event) -> None:
    async def scenario(url: Url) -> None:
        await bring(url, state)
        before = await url.counts()
        assert not await url.apply(event)
        assert await url.state() is state
        assert await url.counts() == before

    run_scenario(scenario)


def test_dead_urls_are_archived_like_done_ones(run_scenario: Callable[..., None]) -> None:
    async def scenario(url: Url) -> None:
        await bring(url, State.DEAD)
        assert await url.apply(Event.ARCHIVE)
        assert not await url.apply(Event.REQUEUE)
        assert await url.state() is State.ARCHIVED

    run_scenario(scenario)
