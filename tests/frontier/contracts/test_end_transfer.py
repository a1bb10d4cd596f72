"""The slot of a host is free when the transfer of a lease has ended, while its callback goes on (C5)."""

from __future__ import annotations

from dataclasses import replace

from lycosa.frontier.core.model import RecordKind
from tests.frontier.contracts.conftest import Open
from tests.frontier.contracts.test_claims import ONE, SLOW, assert_waiting, do_nothing, start_claim
from tests.frontier.contracts.test_frontier import HOST, PLAIN, run, url, urls_of


def test_a_slot_is_freed_only_once_and_the_lease_stays_until_its_ack(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(ONE)
        await frontier.push([url(1), url(2), url(3)])
        (first,) = await frontier.lease(5, 0.0)
        frontier.end_transfer(first, 1.0)
        (second,) = await frontier.lease(5, 1.0)
        frontier.end_transfer(first, 1.0)
        assert await frontier.lease(5, 1.0) == [], "a second call frees no other slot"
        assert (await frontier.stats()).leased == 2
        assert await frontier.ack(first, "200", (), 2.0)
        assert await frontier.lease(5, 2.0) == [], "the end of the lease frees no other slot, either"
        assert await frontier.ack(second, "200", (), 2.0)
        assert await urls_of(frontier, 5, 2.0) == [f"{HOST}/3"]

    run(scenario())


def test_delay_counts_from_the_start_of_the_transfer(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(SLOW)
        await frontier.push([url(1), url(2)])
        (first,) = await frontier.lease(5, 100.0)
        frontier.end_transfer(first, 103.0)
        assert await frontier.lease(5, 109.0) == []
        assert await urls_of(frontier, 5, 110.0) == [f"{HOST}/2"]

    run(scenario())


def test_host_that_was_not_contacted_has_its_turn_back(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(SLOW)
        await frontier.push([url(1), url(2)])
        (first,) = await frontier.lease(5, 100.0)
        frontier.end_transfer(first, 101.0, contacted=False)
        (second,) = await frontier.lease(5, 101.0)
        assert await frontier.ack(first, "robots", (), 101.0, contacted=False)
        assert await frontier.lease(5, 110.0) == []
        assert await frontier.ack(second, "200", (), 111.0)

    run(scenario())


def test_failed_and_released_records_come_back(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1), url(2)])
        for expected in (1, 2):
            (lease,) = await frontier.lease(1, 0.0)
            frontier.end_transfer(lease, 0.0)
            assert lease.record.url == url(expected).url
            if expected == 1:
                assert await frontier.nack(lease, "503", 50.0, 0.0)
            else:
                assert await frontier.release(lease, 0.0)
        assert await urls_of(frontier, 5, 1.0) == [f"{HOST}/2"]
        assert await urls_of(frontier, 5, 51.0) == [f"{HOST}/1"]

    run(scenario())


def test_claims_start_when_the_transfer_of_another_page_has_ended(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(ONE)
        await frontier.push([url(1)])
        (lease,) = await frontier.lease(5, 0.0)
        woken: list[None] = []
        claim = await frontier.claim(HOST, lambda: woken.append(None), 0.0)
        await assert_waiting(frontier, claim, 0.0)
        frontier.end_transfer(lease, 0.0)
        assert woken
        assert await frontier.try_start(claim, 0.0) == 0.0
        second = await frontier.claim(HOST, do_nothing, 0.0, lease)
        await assert_waiting(frontier, second, 0.0)
        await frontier.release_claim(claim, 0.0)
        await frontier.release_claim(second, 0.0)
        await start_claim(frontier, HOST, 0.0, lease)

    run(scenario())


def test_prerequisites_end_with_their_lease_only(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, robots=True))
        await frontier.push([url(1)])
        (lease,) = await frontier.lease(5, 1e6)
        assert lease.record.kind == RecordKind.ROBOTS
        frontier.end_transfer(lease, 1e6)
        assert await frontier.lease(5, 1e6) == []

    run(scenario())
