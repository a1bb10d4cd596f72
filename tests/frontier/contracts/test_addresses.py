"""The contract of limits per IP address (C5, F8), for each back end that sees all hosts.

See `frontier.ports.Frontier`.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from lycosa.core.errors import UsageError
from lycosa.frontier.core.model import HostFacts, RecordKind
from tests.conftest import PROVE
from tests.frontier.contracts.conftest import Open, run_without_waiting
from tests.frontier.contracts.redis.redis_client import LooplessClient
from tests.frontier.contracts.test_frontier import HOST, PLAIN, run, url
from tests.frontier.simulated import simulated_frontier

HOSTS = [f"http://h{number}.example:80" for number in range(5)]
ADDRESS = "10.0.0.1"


async def share_address(frontier: Any, now: float, urls: int = 3) -> None:
    """Queue some pages for each host; all have the same address."""
    await frontier.push([url(number, host) for host in HOSTS for number in range(urls)])
    for host in HOSTS:
        await frontier.set_address(host, ADDRESS, now + 1e6, now)


def test_an_address_is_looked_up_first_and_after_it_expires(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1))
        await frontier.push([url(1), url(2)])
        (lookup,) = await frontier.lease(5, 100.0)
        assert (lookup.record.kind, lookup.record.host) == (RecordKind.RESOLVE, HOST)
        assert await frontier.lease(5, 100.0) == []
        await frontier.set_address(HOST, ADDRESS, 200.0, 100.0)
        await frontier.ack(lookup, "resolved", (), 100.0, contacted=False)
        assert not frontier.needs_address(HOST, 199.0)
        (page,) = await frontier.lease(5, 100.0)
        assert (page.record.kind, page.address) == (RecordKind.PAGE, ADDRESS)
        await frontier.ack(page, "200", (), 101.0)
        assert frontier.needs_address(HOST, 200.0)
        (again,) = await frontier.lease(5, 200.0)
        assert again.record.kind == RecordKind.RESOLVE

    run(scenario())


def test_the_hosts_of_an_address_share_its_slots_in_turn(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=2))
        await share_address(frontier, 100.0)
        running = await frontier.lease(9, 100.0)
        served: list[str] = []
        while running:
            assert len(running) <= 2
            assert await frontier.lease(9, 100.0) == []
            lease = running.pop(0)
            served.append(lease.record.host)
            assert lease.address == ADDRESS
            await frontier.ack(lease, "200", (), 100.0)
            running += await frontier.lease(9, 100.0)
        assert len(served) == 15
        assert sorted(served[:5]) == sorted(served[5:10]) == HOSTS, "first come, first served"

    run(scenario())


def test_the_hosts_of_an_address_share_its_delay(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, delay_s=4.0, delay_per_ip_s=1.0))
        await share_address(frontier, 100.0)
        starts: list[tuple[float, str]] = []
        now = 100.0
        while len(starts) < 15:
            for lease in await frontier.lease(9, now):
                starts.append((now, lease.record.host))
                await frontier.ack(lease, "200", (), now)
            now += 0.25
        assert [start for start, _ in starts] == [100.0 + number for number in range(15)]
        assert all([host for _, host in starts[n : n + 5]] == [host for _, host in starts[:5]] for n in (0, 5, 10))

    run(scenario())


def test_a_request_has_the_delays_of_its_host_and_of_its_address(new_local: Open) -> None:
    """A worker that starts requests in several processes must keep these delays."""

    async def scenario() -> None:
        host, other = HOSTS[:2]
        frontier = new_local(replace(PLAIN, delay_s=4.0, delay_per_ip_s=1.0))
        assert frontier.delays(host) == [], "nothing is known of the host"
        await frontier.push([url(1, host), url(1, other)])
        assert frontier.delays(host) == [(host, 4.0)], "its address is not known"
        await frontier.set_address(host, ADDRESS, 1e6, 100.0)
        assert frontier.delays(host) == [(host, 4.0), (ADDRESS, 1.0)]
        assert frontier.delays(other) == [(other, 4.0)]
        for policy, delays in ((PLAIN, []), (replace(PLAIN, delay_per_ip_s=1.0), [(ADDRESS, 1.0)])):
            frontier = new_local(policy)
            await share_address(frontier, 100.0)
            assert frontier.delays(host) == delays

    run(scenario())


def test_a_slot_that_one_host_cannot_use_goes_to_another(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1))
        await share_address(frontier, 100.0, urls=1)
        (first,) = await frontier.lease(9, 100.0)
        others = [host for host in HOSTS if host != first.record.host]
        for host in others[:3]:
            await frontier.block_host(host, 500.0)
        await frontier.ack(first, "200", (), 100.0)
        (second,) = await frontier.lease(9, 100.0)
        assert second.record.host == others[3]
        await frontier.ack(second, "200", (), 100.0)
        assert await frontier.lease(9, 499.0) == []
        assert frontier.next_ready(499.0) == 500.0
        assert len(await frontier.lease(9, 500.0)) == 1

    run(scenario())


def test_a_host_with_a_new_address_gets_the_limits_of_that_address(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1))
        await share_address(frontier, 100.0)
        (first,) = await frontier.lease(9, 100.0)
        other = next(host for host in HOSTS if host != first.record.host)
        await frontier.set_address(other, "10.0.0.2", 1e6, 100.0)
        (second,) = await frontier.lease(9, 100.0)
        assert (second.record.host, second.address) == (other, "10.0.0.2")
        await frontier.set_address(first.record.host, "10.0.0.3", 1e6, 100.0)
        (third,) = await frontier.lease(9, 100.0)
        assert (third.record.host, third.address) == (first.record.host, "10.0.0.3")
        assert await frontier.lease(9, 100.0) == [], "transfers in flight count where they started"
        await frontier.ack(first, "200", (), 100.0)
        (fourth,) = await frontier.lease(9, 100.0)
        assert fourth.address == ADDRESS

    run(scenario())


def test_a_lease_that_did_not_contact_the_host_passes_its_turn_to_the_next(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, delay_per_ip_s=10.0))
        await share_address(frontier, 100.0)
        (first,) = await frontier.lease(9, 100.0)
        await frontier.ack(first, "robots", (), 100.0, contacted=False)
        assert len(await frontier.lease(9, 100.0)) == 1
        assert frontier.next_ready(100.0) == 110.0

    run(scenario())


def test_older_segments_go_first_within_an_address(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, concurrency_per_ip=1))
        await share_address(frontier, 1e9, urls=0)
        newer = [url(number, HOSTS[number], segment="2001-01-02") for number in range(3)]
        await frontier.push([*newer, url(9, HOSTS[4], segment="2001-01-01"), url(8, HOSTS[3])])
        order = []
        for _ in range(5):
            (lease,) = await frontier.lease(9, 1e9)
            order.append(lease.record.segment)
            await frontier.ack(lease, "200", (), 1e9)
        assert order == ["", "2001-01-01", "2001-01-02", "2001-01-02", "2001-01-02"]

    run(scenario())


@pytest.mark.parametrize("seed", range(5 if PROVE else 2))
def test_every_ready_record_is_leased(new_unpartitioned: Open, seed: int) -> None:
    """Random addresses, blocks and ends: no slot stays free while a host may use it, and all URLs get done."""

    async def scenario() -> None:
        rng = random.Random(seed)
        places, delay = rng.choice([(1, 0.0), (2, 0.5), (0, 0.5)])
        policy = replace(PLAIN, concurrency_per_host=2, concurrency_per_ip=places, delay_per_ip_s=delay)
        frontier, now = new_unpartitioned(policy), 1000.0
        await share_address(frontier, now, urls=6)
        address_of = dict.fromkeys(HOSTS, ADDRESS)
        blocked = dict.fromkeys(HOSTS, 0.0)
        remaining, in_flight, last = dict.fromkeys(HOSTS, 6), [], {}
        for _ in range(400):
            for lease in await frontier.lease(99, now):
                address = lease.address
                assert address == address_of[lease.record.host]
                assert now >= last.get(address, 0.0) + delay
                last[address] = now
                remaining[lease.record.host] -= 1
                in_flight.append(lease)
            for address in set(address_of.values()):
                busy = sum(lease.address == address for lease in in_flight)
                assert busy <= (places or 99)
                leasable = [
                    host for host in HOSTS if address_of[host] == address and remaining[host] and blocked[host] <= now
                ]
                leasable = [host for host in leasable if sum(lease.record.host == host for lease in in_flight) < 2]
                full = (0 < places <= busy) or now < last.get(address, 0.0) + delay
                assert full or not leasable, f"{leasable} could be leased"
            action = rng.randrange(4)
            host = rng.choice(HOSTS)
            if action == 0 and rng.random() < 0.3:
                blocked[host] = max(blocked[host], now + rng.choice([1.0, 5.0]))
                await frontier.block_host(host, blocked[host])
            elif action == 1 and rng.random() < 0.3:
                address_of[host] = rng.choice([ADDRESS, "10.0.0.2"])
                if last_start := [now for lease in in_flight if lease.record.host == host]:
                    last[address_of[host]] = max(last.get(address_of[host], 0.0), last_start[0])
                await frontier.set_address(host, address_of[host], 1e9, now)
            elif in_flight:
                await frontier.ack(in_flight.pop(rng.randrange(len(in_flight))), "200", (), now)
            now += rng.choice([0.0, 0.25, 0.25])
        assert not any(remaining.values())

    run(scenario())


@pytest.mark.redis
def test_hosts_in_several_partitions_cannot_share_an_address(redis) -> None:
    policy = replace(PLAIN, concurrency_per_ip=1)
    with pytest.raises(UsageError, match="partitions=1"):
        run_without_waiting(simulated_frontier(LooplessClient(redis.url), "parted", policy, 0.0, partitions=3))


def test_robots_txt_uses_a_turn_of_the_address(new_unpartitioned: Open) -> None:
    async def scenario() -> None:
        frontier = new_unpartitioned(replace(PLAIN, robots=True, delay_per_ip_s=10.0))
        now = 1e9
        await share_address(frontier, now)
        (robots,) = await frontier.lease(9, now)
        assert robots.record.kind == RecordKind.ROBOTS
        await frontier.set_host_facts(robots.record.host, HostFacts(b"", 200, now), now)
        await frontier.ack(robots, "200", (), now)
        assert await frontier.lease(9, now + 9.0) == []
        assert len(await frontier.lease(9, now + 10.0)) == 1

    run(scenario())
