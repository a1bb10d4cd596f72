"""The contract of claims and throttled delays (C5, F8), for each back end. See `frontier.ports.Frontier`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lycosa.core.errors import UsageError
from lycosa.crawl.fetching.claims import claim_host
from lycosa.frontier.core import claims as claims_module
from lycosa.frontier.core.model import HostFacts, Lease
from lycosa.frontier.lsm.frontier import embedded_frontier
from lycosa.frontier.operations import LocalOperations
from lycosa.frontier.redis.layout import Key
from lycosa.frontier.redis.worker.frontier import RedisFrontier
from lycosa.frontier.redis.worker.join import redis_frontier
from lycosa.frontier.redis.worker.membership import Membership
from lycosa.infra.clock import Clock
from tests.conftest import need
from tests.frontier.contracts.conftest import PARTITIONS, Open
from tests.frontier.contracts.test_frontier import HOST, OTHER, PLAIN, run, url, urls_of
from tests.servers.clocks import find_gcc, make_clock
from tests.servers.redis import redis_server

ONE = replace(PLAIN, concurrency_per_host=1)
SLOW = replace(PLAIN, delay_s=10.0)


def do_nothing() -> None:
    pass


async def assert_waiting(frontier: Any, claim: Any, now: float) -> None:
    """Assert that the claim must poll again later, or when it is woken."""
    assert await frontier.try_start(claim, now) > now


async def ready(frontier: Any, now: float) -> float | None:
    """Return when something can be leased, with up-to-date counts of the whole frontier."""
    await frontier.stats()
    return frontier.next_ready(now)  # type: ignore[no-any-return]


async def start_claim(frontier: Any, host: str, now: float, holder: Lease | None = None) -> Any:
    claim = await frontier.claim(host, do_nothing, now, holder)
    assert await frontier.try_start(claim, now) == 0.0
    return claim


def test_a_claim_uses_a_turn_and_a_lease_waits_for_the_next(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(SLOW)
        await frontier.push([url(1)])
        claim = await start_claim(frontier, HOST, 100.0)
        assert await frontier.lease(5, 109.0) == []
        assert frontier.next_ready(109.0) == 110.0
        await frontier.release_claim(claim, 109.5)
        assert await urls_of(frontier, 5, 110.0) == [f"{HOST}/1"]
        later = await frontier.claim(HOST, do_nothing, 111.0)
        assert await frontier.try_start(later, 111.0) == 120.0
        assert await frontier.try_start(later, 120.0) == 0.0
        assert await frontier.try_start(later, 120.0) == 0.0, "it has started already"

    run(scenario())


def test_a_claim_uses_a_slot_and_waits_until_it_is_woken(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(ONE)
        await frontier.push([url(1), url(2)])
        (lease,) = await frontier.lease(5, 0.0)
        woken_claims: list[str] = []
        first = await frontier.claim(HOST, lambda: woken_claims.append("first"), 0.0)
        second = await frontier.claim(HOST, lambda: woken_claims.append("second"), 0.0)
        for claim in (first, second):
            await assert_waiting(frontier, claim, 0.0)
        await frontier.ack(lease, "200", (), 0.0)
        assert woken_claims == ["first"]
        assert await frontier.lease(5, 0.0) == []
        await assert_waiting(frontier, second, 0.0)
        assert await frontier.try_start(first, 0.0) == 0.0
        await frontier.release_claim(first, 0.0)
        assert woken_claims[-1] == "second"
        assert await frontier.try_start(second, 0.0) == 0.0
        await frontier.release_claim(second, 0.0)
        assert await urls_of(frontier, 5, 0.0) == [f"{HOST}/2"]

    run(scenario())


def test_a_lease_frees_its_slot_for_its_claims(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(ONE)
        await frontier.push([url(1), url(2), url(3, OTHER)])
        first, second = sorted(await frontier.lease(5, 0.0), key=lambda lease: lease.record.host)
        claim = await start_claim(frontier, HOST, 0.0, first)
        crosswise = await frontier.claim(OTHER, do_nothing, 0.0, first)
        await assert_waiting(frontier, crosswise, 0.0)
        back = await frontier.claim(HOST, do_nothing, 0.0, second)
        assert await frontier.try_start(crosswise, 0.0) == 0.0, "the other lease waits in its callback, too"
        await frontier.release_claim(claim, 0.0)
        assert await frontier.try_start(back, 0.0) == 0.0
        for each in (back, crosswise, crosswise):
            await frontier.release_claim(each, 0.0)
        assert await frontier.ack(first, "200", (), 0.0)
        assert await frontier.nack(second, "x", None, 0.0)
        assert await urls_of(frontier, 5, 0.0) == [f"{HOST}/2"]

    run(scenario())


def test_blocks_and_crawl_delays_apply_to_claims(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(PLAIN)
        waiting = await frontier.claim(HOST, do_nothing, 100.0)
        await frontier.block_host(HOST, 160.0)
        assert await frontier.try_start(waiting, 100.0) == 160.0
        await frontier.set_host_facts(HOST, HostFacts(b"", 200, 150.0, 30.0), 150.0)
        assert await frontier.try_start(waiting, 160.0) == 180.0
        assert await frontier.try_start(waiting, 180.0) == 0.0

    run(scenario())


def forget_idle(frontier: Any, now: float) -> None:
    """Let the frontier forget idle hosts. A frontier on Redis keeps its hosts as long as the crawl exists."""
    if not isinstance(frontier, RedisFrontier):
        frontier.scheduler.forget_idle(now)


def hosts_in_memory(frontier: Any) -> set[str]:
    """Return the hosts in memory; on Redis those with claims that wait or have started."""
    if not isinstance(frontier, RedisFrontier):
        return set(frontier.scheduler.hosts)
    blocking, prefix = frontier.session.calls.client.blocking, f"lycosa:{{{frontier.session.crawl}.*}}:"
    started = [each.decode() for key in blocking.keys(prefix + Key.CLAIMED + "*") for each in blocking.hvals(key)]
    waiting = {key.decode().partition(":claims|")[2] for key in blocking.keys(prefix + Key.CLAIMS + "|*")}
    return waiting | {each.split("\n")[0] for each in started}


def test_a_host_stays_in_memory_while_it_has_claims(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(SLOW)
        claim = await start_claim(frontier, HOST, 100.0)
        waiting = await frontier.claim(OTHER, do_nothing, 100.0)
        await ready(frontier, 100.0)
        forget_idle(frontier, 1000.0)
        assert hosts_in_memory(frontier) == {HOST, OTHER}
        await frontier.release_claim(claim, 101.0)
        await frontier.release_claim(waiting, 101.0)
        await ready(frontier, 101.0)
        forget_idle(frontier, 109.0)
        assert hosts_in_memory(frontier) <= {HOST}, "until its delay has passed"
        early = await frontier.claim(HOST, do_nothing, 109.0)
        assert await frontier.try_start(early, 109.0) == 110.0
        await frontier.release_claim(early, 109.0)
        await ready(frontier, 110.0)
        forget_idle(frontier, 110.0)
        assert hosts_in_memory(frontier) == set()

    run(scenario())


def test_the_delay_after_a_claim_survives_the_process(tmp_path: Path) -> None:
    async def scenario() -> None:
        first = embedded_frontier(tmp_path, SLOW)
        await first.push([url(1)])
        await start_claim(first, HOST, 100.0)
        await first.commit({})
        await first.close()
        second = embedded_frontier(tmp_path, SLOW, now=101.0)
        assert second.next_ready(101.0) == 110.0
        await second.close()

    run(scenario())


def test_limits_per_address_apply_to_claims(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1))
        assert frontier.needs_address(HOST, 0.0)
        for host in (HOST, OTHER):
            await frontier.set_address(host, "10.0.0.1", 1000.0, 0.0)
        assert not frontier.needs_address(HOST, 0.0)
        claim = await start_claim(frontier, HOST, 0.0)
        assert claim.address == "10.0.0.1"
        other = await frontier.claim(OTHER, do_nothing, 0.0)
        await assert_waiting(frontier, other, 0.0)
        await frontier.release_claim(claim, 0.0)
        assert await frontier.try_start(other, 0.0) == 0.0
        assert not new_unpartitioned(PLAIN).needs_address(HOST, 0.0)

    run(scenario())


def test_claims_of_one_address_start_in_the_order_of_their_arrival_and_before_leases(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1))
        third = "http://c.example:80"
        for host in (HOST, OTHER, third):
            await frontier.set_address(host, "10.0.0.1", 1e6, 100.0)
        await frontier.push([url(1)])
        running = await start_claim(frontier, HOST, 100.0)
        second = await frontier.claim(OTHER, do_nothing, 100.0)
        last = await frontier.claim(third, do_nothing, 100.0)
        for claim in (second, last):
            await assert_waiting(frontier, claim, 100.0)
        await frontier.release_claim(running, 100.0)
        assert await frontier.lease(5, 100.0) == []
        await assert_waiting(frontier, last, 100.0)
        assert await frontier.try_start(second, 100.0) == 0.0
        await frontier.release_claim(second, 100.0)
        assert await frontier.try_start(last, 100.0) == 0.0
        await frontier.release_claim(last, 100.0)
        assert len(await frontier.lease(5, 100.0)) == 1

    run(scenario())


def test_no_claim_waits_longer_because_the_clock_was_set_back(new_local: Open) -> None:
    async def scenario() -> None:
        frontier = new_local(SLOW)
        await start_claim(frontier, HOST, 10_000.0)
        waiting = await frontier.claim(HOST, do_nothing, 10_002.0)
        assert await frontier.try_start(waiting, 10_002.0) == 10_010.0
        assert await frontier.try_start(waiting, 1_002.0) == 1_010.0

    run(scenario())


@pytest.mark.redis
@pytest.mark.parametrize("partitions", PARTITIONS.values(), ids=PARTITIONS)
def test_no_claim_waits_longer_because_the_clock_of_redis_was_set_back(tmp_path: Path, partitions: int) -> None:
    """Redis stores pauses by its own clock, so the clock of the server is set back."""
    need("gcc", find_gcc())
    clock, crawl_clock, policy = make_clock(tmp_path), Clock(), replace(PLAIN, delay_s=1.0)

    async def resolve(host: str) -> None:
        raise AssertionError("no limit per address")

    async def scenario(url: str) -> None:
        frontier = await redis_frontier(url, "shop", policy, Membership("w"), print, partitions=partitions)
        started = time.monotonic()
        async with asyncio.timeout(60):
            async with claim_host(HOST, frontier, crawl_clock, resolve=resolve):
                clock.set(-10_000)
            async with claim_host(HOST, frontier, crawl_clock, resolve=resolve):
                assert time.monotonic() - started >= policy.delay_s, "the delay is kept"
        await frontier.close()

    with redis_server(environment=clock.environment) as server:
        run(scenario(server.url))


def test_a_throttled_delay_counts_from_the_last_start(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, delay_s=1.0))
        await frontier.push([url(1), url(2), url(3), url(4)])
        await frontier.set_host_facts(HOST, HostFacts(b"", 200, 90.0, 4.0), 90.0)
        await frontier.lease(1, 100.0)
        await frontier.set_delay(HOST, 20.0, 105.0)
        assert await ready(frontier, 105.0) == 120.0
        await frontier.set_delay(HOST, 0.5, 106.0)
        assert len(await frontier.lease(1, 106.0)) == 1
        assert await ready(frontier, 106.0) == 110.0, "its Crawl-delay is the minimum"
        await frontier.set_delay(HOST, 1e12, 107.0)
        assert await ready(frontier, 107.0) == 106.0 + 86_400.0
        await frontier.set_delay(HOST, 2.0, 108.0)
        await frontier.block_host(HOST, 150.0)
        await frontier.set_delay(HOST, 0.0, 109.0)
        assert await ready(frontier, 109.0) == 150.0

    run(scenario())


def test_a_throttled_delay_is_shown(new_local: Open) -> None:
    async def scenario() -> None:
        frontier = new_local(PLAIN)
        await frontier.push([url(1)])
        await frontier.set_delay(HOST, 20.0, 105.0)
        view = await LocalOperations(frontier).host(HOST)
        assert view is not None
        assert view.delay_s == 20.0

    run(scenario())


def test_a_host_starts_with_the_delay_for_new_hosts(new_frontier: Open) -> None:
    async def scenario() -> None:
        frontier = new_frontier(replace(PLAIN, start_delay_s=5.0))
        await frontier.push([url(1), url(2), url(3)])
        assert len(await frontier.lease(9, 100.0)) == 1
        assert frontier.next_ready(100.0) == 105.0
        await frontier.set_delay(HOST, 0.0, 101.0)
        assert len(await frontier.lease(9, 101.0)) == 2

    run(scenario())


def test_an_engine_waits_until_its_claims_may_start(new_frontier: Open) -> None:
    """On a real loop: slots and delays, and a claim that is cancelled while it waits."""

    async def scenario() -> None:
        frontier, clock = new_frontier(replace(PLAIN, delay_s=0.02, concurrency_per_host=2)), Clock()
        starts: list[float] = []
        in_flight = in_flight_max = 0

        async def resolve(host: str) -> None:
            raise AssertionError("no limit per address")

        async def try_start(claim: Any, now: float) -> float:
            at = await original(claim, now)
            starts.extend([now] * (at == 0.0))
            return at

        original, frontier.try_start = frontier.try_start, try_start

        async def fetch() -> None:
            nonlocal in_flight, in_flight_max
            async with claim_host(HOST, frontier, clock, resolve=resolve):
                in_flight += 1
                in_flight_max = max(in_flight_max, in_flight)
                await asyncio.sleep(0.05)
                in_flight -= 1

        async with asyncio.timeout(60), asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch()) for _ in range(10)]
            await asyncio.sleep(0)
            tasks[5].cancel()
        assert (len(starts), in_flight_max) == (9, 2)
        assert min(later - earlier for earlier, later in pairwise(sorted(starts))) >= 0.02 - 1e-6
        frontier.try_start = original
        later = clock.now() + 10.0
        for number in range(2):
            await start_claim(frontier, HOST, later + number)
        await assert_waiting(frontier, await frontier.claim(HOST, do_nothing, later + 2), later + 2)

    run(scenario())


def test_an_engine_looks_up_addresses_if_they_are_limited(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier, clock = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1)), Clock()

        async def resolve(host: str) -> None:
            await frontier.set_address(host, "10.0.0.7", clock.now() + 60.0, clock.now())

        changes: list[int] = []
        for number in range(2):
            async with claim_host(HOST, frontier, clock, resolve=resolve, changed=lambda: changes.append(1)) as address:
                assert (address, len(changes)) == ("10.0.0.7", 3 * number + 2)
                another = await frontier.claim(HOST, do_nothing, clock.now())
                await assert_waiting(frontier, another, clock.now())
                await frontier.release_claim(another, clock.now())
        assert len(changes) == 6

    run(scenario())


def test_the_number_of_waiting_claims_is_bounded(new_frontier: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        frontier = new_frontier(ONE)
        claims = [await frontier.claim(host, do_nothing, 0.0) for host in (HOST, OTHER, HOST)]
        with pytest.raises(UsageError, match="fetch fewer at a time"):
            await frontier.claim(OTHER, do_nothing, 0.0)
        assert await frontier.try_start(claims[0], 0.0) == 0.0
        await frontier.claim(OTHER, do_nothing, 0.0)
        with pytest.raises(UsageError):
            await frontier.claim(OTHER, do_nothing, 0.0)
        await frontier.release_claim(claims[2], 0.0)
        await frontier.claim(OTHER, do_nothing, 0.0)

    monkeypatch.setattr(claims_module, "WAITING_MAX", 3)
    run(scenario())
