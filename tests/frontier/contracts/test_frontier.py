"""The contract of every frontier (C5, C6, F1, F4-F7), for each back end. See `frontier.ports.Frontier`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from lycosa.frontier.core.model import Extras, HostFacts, RecordKind, Selection, UrlRecord
from lycosa.frontier.core.states import EXPIRIES_MAX, Policy
from lycosa.frontier.local import BLOCK_MAX_S
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.lsm.store import BUFFER_MAX
from lycosa.frontier.operations import LocalOperations
from tests.frontier.contracts.conftest import Open

HOST = "http://a.example:80"
OTHER = "http://b.example:80"
PLAIN = Policy(robots=False, concurrency_per_host=100)


def url(number: int, host: str = HOST, **fields: Any) -> UrlRecord:
    return UrlRecord(1, crc32(f"{host}{number}".encode()), f"{host}/{number}", host, **fields)


def run(scenario: Awaitable[None]) -> None:
    asyncio.run(scenario)  # type: ignore[arg-type]


async def urls_of(frontier: Any, limit: int, now: float) -> list[str]:
    return [lease.record.url for lease in await frontier.lease(limit, now)]


def test_a_url_is_leased_once_and_then_done(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        assert await frontier.push([url(1)]) == 1
        (lease,) = await frontier.lease(10, 100.0)
        assert lease.record.url == f"{HOST}/1"
        assert lease.token != 0
        assert await frontier.lease(10, 100.0) == []
        assert await frontier.ack(lease, "200", (), 101.0)
        stats = await frontier.stats()
        assert (stats.done, stats.unfinished, stats.reasons) == (1, 0, {"200": 1})
        assert frontier.next_ready(101.0) is None

    run(scenario())


def test_duplicates_are_dropped_per_segment_even_of_done_urls(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        assert await frontier.push([url(1), url(1), url(2)]) == 2
        for lease in await frontier.lease(10, 0.0):
            await frontier.ack(lease, "200", [url(1), url(2), url(3)], 0.0)
        assert await urls_of(frontier, 10, 0.0) == [f"{HOST}/3"]
        assert await frontier.push([url(1, segment="monday"), url(1, segment="monday")]) == 1

    run(scenario())


def test_a_record_with_dont_filter_is_always_queued(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        again = url(1, dont_filter=True)
        assert await frontier.push([url(1), again, again]) == 3
        leases = await frontier.lease(10, 0.0)
        assert len(leases) == 3
        assert [await frontier.ack(lease, "200", (), 0.0) for lease in leases] == [True] * 3
        assert await frontier.push([url(1)]) == 0

    run(scenario())


def test_known_never_contains_a_new_url(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1)])
        first, second = url(1).fingerprint, url(2).fingerprint
        assert frontier.known("", [second, first]) == {first}
        assert frontier.known("monday", [first]) == set()

    run(scenario())


def test_the_highest_priority_goes_first_then_first_come_first_served(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push(
            [url(1), url(2, priority=5), url(3, priority=-5), url(4, priority=5), url(5, priority=1 << 40)]
        )
        assert await urls_of(frontier, 10, 0.0) == [f"{HOST}/{n}" for n in (5, 2, 4, 1, 3)]

    run(scenario())


def test_priority_applies_if_most_records_of_a_host_are_on_disk(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, concurrency_per_host=10_000))
        count = BUFFER_MAX * 3
        await frontier.push([url(n) for n in range(count)])
        first = await urls_of(frontier, 10, 0.0)
        await frontier.push([url(n, priority=1) for n in range(count, 2 * count)])
        rest = await urls_of(frontier, 10_000, 0.0)
        assert first == [f"{HOST}/{n}" for n in range(10)]
        assert rest == [f"{HOST}/{n}" for n in [*range(count, 2 * count), *range(10, count)]]

    run(scenario())


def test_a_stored_request_is_leased_unchanged(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        extras = Extras("POST", {"X-A": "1"}, b"\x00body", "parse_item", {"page": 3, "tags": ["a"]}, {"n": 1.5})
        await frontier.push([url(1, depth=4, redirects=2, extras=extras)])
        (lease,) = await frontier.lease(1, 0.0)
        assert lease.record.extras == extras
        assert (lease.record.depth, lease.record.redirects) == (4, 2)

    run(scenario())


def test_not_before_delays_a_record(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1, not_before=50.0), url(2, not_before=40.0)])
        assert await frontier.lease(10, 39.9) == []
        assert frontier.next_ready(39.9) == pytest.approx(40.0)
        assert (await frontier.stats()).delayed == 2
        assert await urls_of(frontier, 10, 40.0) == [f"{HOST}/2"]
        assert await urls_of(frontier, 10, 50.0) == [f"{HOST}/1"]

    run(scenario())


def test_a_nack_counts_as_an_attempt_and_retries_later(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1)])
        (lease,) = await frontier.lease(1, 0.0)
        assert await frontier.nack(lease, "503", 10.0, 0.0)
        assert await frontier.lease(1, 9.0) == []
        (again,) = await frontier.lease(1, 10.0)
        assert again.record.attempts == 1
        assert await frontier.nack(again, "503", None, 10.0)
        stats = await frontier.stats()
        assert (stats.dead, stats.unfinished, stats.dead_reasons) == (1, 0, {"503": 1})
        ((record, reason),) = await frontier.dead(5)
        assert (record.url, reason) == (f"{HOST}/1", "503")
        assert await frontier.push([url(1)]) == 0

    run(scenario())


def test_a_released_record_keeps_its_place_and_attempts(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1), url(2)])
        (lease,) = await frontier.lease(1, 0.0)
        assert await frontier.release(lease, 0.0)
        first, second = await frontier.lease(2, 0.0)
        assert (first.record.url, first.record.attempts, second.record.url) == (f"{HOST}/1", 0, f"{HOST}/2")

    run(scenario())


def test_an_expired_record_is_leased_again_and_the_old_token_refused(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, lease_s=30.0))
        await frontier.push([url(1)])
        (old,) = await frontier.lease(1, 0.0)
        assert await frontier.expire(29.9) == 0
        assert await frontier.expire(30.0) == 1
        (new,) = await frontier.lease(1, 30.0)
        assert new.record.url == old.record.url
        assert new.token != old.token
        assert not await frontier.ack(old, "200", [url(2)], 31.0)
        assert not await frontier.nack(old, "x", None, 31.0)
        assert not await frontier.release(old, 31.0)
        assert await frontier.renew(old, 31.0) is None
        assert (await frontier.stats()).queued == 0
        assert await frontier.ack(new, "200", (), 31.0)

    run(scenario())


def test_a_renewed_lease_stays_valid(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, lease_s=30.0))
        await frontier.push([url(1), url(2)])
        first, second = await frontier.lease(2, 0.0)
        renewed = await frontier.renew(first, 20.0)
        assert renewed is not None
        assert renewed.expires_at == 50.0
        assert await frontier.expire(30.0) == 1
        assert await frontier.ack(first, "200", (), 31.0)
        assert not await frontier.ack(second, "200", (), 31.0)

    run(scenario())


def test_a_record_whose_leases_keep_expiring_is_dead(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, lease_s=1.0))
        await frontier.push([url(1)])
        for number in range(EXPIRIES_MAX):
            assert len(await frontier.lease(1, 10.0 * number)) == 1
            await frontier.expire(10.0 * number + 1)
        assert await frontier.lease(1, 1000.0) == []
        assert (await frontier.stats()).dead == 1

    run(scenario())


def test_the_concurrency_per_host_is_limited(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, concurrency_per_host=2))
        await frontier.push([url(n) for n in range(5)] + [url(n, OTHER) for n in range(5)])
        leases = await frontier.lease(100, 0.0)
        assert sorted(lease.record.host for lease in leases) == [HOST, HOST, OTHER, OTHER]
        assert frontier.next_ready(0.0) is None
        await frontier.ack(leases[0], "200", (), 0.0)
        assert [lease.record.host for lease in await frontier.lease(100, 0.0)] == [leases[0].record.host]

    run(scenario())


def test_the_delay_between_starts_on_one_host_is_kept(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, delay_s=2.0))
        await frontier.push([url(n) for n in range(3)] + [url(9, OTHER)])
        leases = await frontier.lease(100, 10.0)
        assert sorted(lease.record.host for lease in leases) == [HOST, OTHER]
        for lease in leases:
            await frontier.ack(lease, "200", (), 10.1)
        assert frontier.next_ready(10.1) == 12.0
        assert await frontier.lease(100, 11.9) == []
        assert len(await frontier.lease(100, 12.0)) == 1

    run(scenario())


def test_a_lease_that_did_not_contact_the_host_uses_no_turn(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, delay_s=2.0))
        await frontier.push([url(n) for n in range(3)])
        (lease,) = await frontier.lease(100, 10.0)
        await frontier.ack(lease, "robots", (), 10.0, contacted=False)
        assert len(await frontier.lease(100, 10.0)) == 1
        assert await frontier.lease(100, 11.0) == []

    run(scenario())


def test_a_blocked_host_does_not_block_the_crawl(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1), url(2, OTHER)])
        await frontier.block_host(HOST, 60.0)
        assert await urls_of(frontier, 10, 59.0) == [f"{OTHER}/2"]
        assert frontier.next_ready(59.0) == 60.0
        assert await urls_of(frontier, 10, 60.0) == [f"{HOST}/1"]

    run(scenario())


def test_hosts_take_turns(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(n) for n in range(90)] + [url(n, OTHER) for n in range(10)])
        hosts = [lease.record.host for lease in await frontier.lease(20, 0.0)]
        assert hosts.count(OTHER) == 10

    run(scenario())


def test_robots_txt_is_fetched_first_alone_and_once_per_host(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(Policy(robots=True, robots_ttl_s=1000.0))
        await frontier.push([url(1), url(2)])
        (lease,) = await frontier.lease(10, 5000.0)
        assert (lease.record.kind, lease.record.url) == (RecordKind.ROBOTS, f"{HOST}/robots.txt")
        assert await frontier.lease(10, 5000.0) == []
        await frontier.set_host_facts(HOST, HostFacts(b"rules", 200, 5001.0, 3.0), 5001.0)
        assert await frontier.ack(lease, "robots.txt", (), 5001.0)
        assert (await frontier.stats()).done == 0
        assert frontier.next_ready(5001.0) == 5004.0
        assert await urls_of(frontier, 10, 5004.0) == [f"{HOST}/1"]
        assert await urls_of(frontier, 10, 5007.0) == [f"{HOST}/2"]
        facts = await frontier.host_facts(HOST)
        assert facts is not None
        assert facts.robots == b"rules"
        await frontier.push([url(3)])
        (lease,) = await frontier.lease(10, 6001.0)
        assert lease.record.kind == RecordKind.ROBOTS

    run(scenario())


def test_a_failed_robots_txt_is_fetched_again_later(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(Policy(robots=True))
        now = 1e9
        await frontier.push([url(1)])
        (lease,) = await frontier.lease(10, now)
        await frontier.nack(lease, "503", now + 5, now)
        assert await frontier.lease(10, now + 4) == []
        (again,) = await frontier.lease(10, now + 5)
        assert (again.record.kind, again.record.attempts) == (RecordKind.ROBOTS, 1)
        assert await frontier.release(again, now + 5)
        assert len(await frontier.lease(10, now + 5)) == 1

    run(scenario())


def test_positions_are_those_of_the_last_commit(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        assert await frontier.positions() == {}
        await frontier.commit({"a": 10, "b": 1})
        await frontier.commit({"a": 20})
        assert await frontier.positions() == {"a": 20, "b": 1}

    run(scenario())


def test_a_pause_is_stored_but_the_current_delay_applies(tmp_path: Path) -> None:
    """A crawl with a long delay resumes with a short one; a Retry-After applies with any delay."""

    async def scenario() -> None:
        slow = embedded_frontier(tmp_path, replace(PLAIN, delay_s=60.0))
        await slow.push([url(1), url(2), url(3, OTHER)])
        await slow.block_host(OTHER, 500.0)
        await slow.lease(1, 100.0)
        await slow.commit({})
        await slow.close()
        same = embedded_frontier(tmp_path, replace(PLAIN, delay_s=60.0))
        assert same.next_ready(101.0) == 160.0
        await same.close()
        quick = embedded_frontier(tmp_path, replace(PLAIN, delay_s=2.0))
        assert quick.next_ready(101.0) == 102.0
        assert await urls_of(quick, 9, 102.0) == [f"{HOST}/1"]
        assert quick.next_ready(300.0) == 104.0
        assert await urls_of(quick, 9, 499.0) == [f"{HOST}/2"]
        assert await urls_of(quick, 9, 500.0) == [f"{OTHER}/3"]
        await quick.close()

    run(scenario())


def test_no_host_waits_longer_because_the_clock_was_set_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        day = 86_400.0
        policy = replace(PLAIN, delay_s=5.0)
        before = embedded_frontier(tmp_path, policy, now=2 * day)
        await before.push([url(1), url(2)])
        assert len(await before.lease(1, 2 * day)) == 1
        await before.commit({})
        await before.close()
        after = embedded_frontier(tmp_path, policy, now=day)
        assert after.next_ready(day) == day + 5.0
        await after.close()

    run(scenario())


def test_a_robots_txt_from_the_future_expires_after_its_usual_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        year = 365 * 86_400.0
        policy = Policy(robots=True, robots_ttl_s=100.0)
        before = embedded_frontier(tmp_path, policy, now=2 * year)
        await before.push([url(1)])
        await before.set_host_facts(HOST, HostFacts(b"rules", 200, 2 * year), 2 * year)
        await before.commit({})
        await before.close()
        after = embedded_frontier(tmp_path, policy, now=year)
        assert await urls_of(after, 1, year + 99.0) == [f"{HOST}/1"]
        await after.push([url(2)])
        (lease,) = await after.lease(1, year + 100.0)
        assert lease.record.kind == RecordKind.ROBOTS
        await after.close()

    run(scenario())


def test_no_host_waits_longer_because_the_clock_was_set_back_after_the_opening(tmp_path: Path) -> None:
    """One host has work at the opening; the other host gets work after the clock was set back."""

    async def scenario() -> None:
        for name, due in (("at once", 0.0), ("later", 99_500.0)):
            frontier = embedded_frontier(tmp_path / name, PLAIN)
            await frontier.push([url(1, not_before=due)])
            await frontier.block_host(HOST, 100_900.0)
            await frontier.commit({})
            await frontier.close()
            frontier = embedded_frontier(tmp_path / name, PLAIN, now=100_000.0 - bool(due) * 600.0)
            assert await frontier.lease(1, 1_000.0) == []
            await frontier.push([url(2)])
            assert frontier.next_ready(1_000.0) <= 1_000.0 + BLOCK_MAX_S
            await frontier.close()

    run(scenario())


def test_a_robots_txt_whose_leases_keep_expiring_is_given_up(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(Policy(robots=True, lease_s=1.0))
        now = 1e9
        await frontier.push([url(1)])
        for _ in range(EXPIRIES_MAX):
            (lease,) = await frontier.lease(1, now)
            assert lease.record.kind == RecordKind.ROBOTS
            assert await frontier.expire(now + 1.0) == 1
            now += 1000.0
        facts = await frontier.host_facts(HOST)
        assert facts is not None
        assert facts.robots_status == 0
        assert await urls_of(frontier, 1, now) == [f"{HOST}/1"]

    run(scenario())


def test_a_guarded_record_stays_guarded(new_frontier: Open) -> None:
    """It is guarded when it is leased, retried and requeued; the robots.txt of its host is guarded, too."""

    async def scenario() -> None:
        frontier = new_frontier(Policy(robots=True))
        now = 1e9
        await frontier.push([url(1, guarded=True), url(2, OTHER)])
        prerequisites = {lease.record.host: lease for lease in await frontier.lease(9, now)}
        assert [prerequisites[host].record.guarded for host in (HOST, OTHER)] == [True, False]
        for host, lease in prerequisites.items():
            await frontier.set_host_facts(host, HostFacts(b"", 200, now), now)
            await frontier.ack(lease, "robots.txt", (), now)
        for again in ("nack", "ack", "requeue") if hasattr(frontier, "store") else ("nack", "ack"):
            leases = {lease.record.host: lease for lease in await frontier.lease(9, now)}
            assert [leases[host].record.guarded for host in (HOST, OTHER)] == [True, False]
            for lease in leases.values():
                if again == "nack":
                    await frontier.nack(lease, "503", now, now)
                else:
                    await frontier.ack(lease, "200", (), now)
            if again == "ack" and hasattr(
                frontier, "store"
            ):  # other back ends store only the fingerprint of a done URL
                result = await LocalOperations(frontier).requeue(Selection(("done",)), None, now, "", 99)
                assert result.requeued == 2

    run(scenario())


def test_a_host_that_gets_more_work_keeps_its_place_in_the_queue(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        await frontier.push([url(1), url(1, OTHER)])
        await frontier.lease(0, 0.0)
        await frontier.push([url(2)])
        assert await urls_of(frontier, 1, 0.0) == [f"{HOST}/1"]

    run(scenario())
