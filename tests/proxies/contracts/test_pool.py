"""The contract of every pool of proxies. The time of a pool is `clock.now`; callers wait in real time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from random import random
from secrets import token_hex

import pytest

from lycosa.core.errors import NoProxy, UsageError
from lycosa.proxies.core.explain import Why
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.pool.target import ANY, ProxyRequest
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.folder.pool import EmbeddedPool, embedded_pool
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyPool
from lycosa.proxies.redis.pool import redis_pool

SITE = "a.example"
LONG_S = 20.0
"""No caller waits this long unless something is broken."""


class ManualClock:
    """A clock that tests set."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


Scenario = Callable[[ProxyPool, ManualClock], Awaitable[None]]


async def in_memory(policy_of: Callable[[str], TargetPolicy], clock: ManualClock, _: str) -> ProxyPool:
    return LocalPool(policy_of, clock)


async def in_a_folder(policy_of: Callable[[str], TargetPolicy], clock: ManualClock, folder: str) -> ProxyPool:
    return await embedded_pool(Path(folder), print, policy_of, now=clock)


class Client(EmbeddedPool):
    """A pool that is a client of another one."""

    owner: EmbeddedPool

    async def close(self) -> None:
        await super().close()
        await self.owner.close()


async def through_a_socket(policy_of: Callable[[str], TargetPolicy], clock: ManualClock, folder: str) -> ProxyPool:
    owner = await embedded_pool(Path(folder), print, policy_of, now=clock)
    pool = Client(Path(folder), policy_of, clock, random, print)
    pool.owner = owner
    await pool.join()
    assert (owner.owns, pool.owns) == (True, False)
    return pool


async def on_redis(policy_of: Callable[[str], TargetPolicy], clock: ManualClock, url: str) -> ProxyPool:
    return await redis_pool(url, token_hex(4), print, policy_of, now=clock)


KINDS = [
    in_memory,
    in_a_folder,
    through_a_socket,
    pytest.param(on_redis, marks=pytest.mark.redis),
    pytest.param(on_redis, marks=[pytest.mark.redis, pytest.mark.prove], id="on_a_cluster"),
]


@pytest.fixture(params=KINDS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Run a scenario on a new pool with `count` proxies."""
    server = {"on_redis": "redis", "on_a_cluster": "cluster"}.get(request.node.callspec.id.partition("-")[0])
    url = request.getfixturevalue(server).url if server else str(tmp_path / "pool")

    def run_scenario(scenario: Scenario, count: int = 1, **policy: object) -> None:
        async def main() -> None:
            clock = ManualClock()
            pool = await request.param(lambda _: TargetPolicy(**policy), clock, url)  # type: ignore[arg-type]
            assert await pool.add(proxies(count)) == count
            try:
                await scenario(pool, clock)
            finally:
                await pool.close()

        asyncio.run(main())

    return run_scenario


def proxies(count: int) -> list[Proxy]:
    return [Proxy("http", f"10.0.{number // 250}.{number % 250 + 1}", 8080) for number in range(count)]


def test_a_proxy_is_leased_once_for_a_target(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        with pytest.raises(NoProxy, match=r"no proxy for a\.example is free \(1 leased\)"):
            await pool.acquire(SITE)
        assert (await pool.acquire("b.example"))[0].proxy == lease.proxy, "another target may lease it at the same time"
        assert await pool.release(lease, [Outcome()])
        assert not await pool.release(lease, [Outcome()]), "only once"
        assert (await pool.acquire(SITE))[0].token != lease.token

    run(scenario)


def test_the_latency_of_one_outcome_counts_among_many_without_a_latency(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        assert await pool.release(lease, [Outcome(latency_s=0.2), *(Outcome() for _ in range(50))])
        (other,) = [view.proxy for view in await pool.proxies() if view.proxy != lease.proxy]
        assert await pool.report_check(other.key, Outcome(Blame.NOBODY)), "pending reports are sent with the check"
        found = {view.proxy.key: (view.latency_s, view.uses) for view in await pool.proxies()}
        assert found == {lease.proxy.key: (0.2, 51), other.key: (None, 0)}

    run(scenario, 2)


def test_a_request_with_unknown_tags_fails_because_no_proxy_fits(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        with pytest.raises(NoProxy, match=r"no proxy for a\.example is free within 0\.05 s \(none fits\)"):
            await pool.acquire(SITE, request=ProxyRequest(tags={"country": "xx"}), wait_s=0.0512345)
        assert await pool.acquire(SITE), "a request without tags is granted"

    run(scenario, 2)


def test_several_proxies_are_leased_together_or_not_at_all(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        lease = await pool.acquire(SITE, 3)
        assert len({each.proxy.key for each in lease}) == 3
        with pytest.raises(NoProxy, match=r"^no 3 proxies for a.example were free at once \(.*2 ready"):
            await pool.acquire(SITE, 3)
        assert len(await pool.acquire(SITE, 2)) == 2, "too few for three, but enough for two"
        with pytest.raises(NoProxy, match=r"; the target has at most 200: set members = 201$"):
            await pool.acquire(SITE, 201)
        for count, request in ((0, ProxyRequest()), (1001, ProxyRequest()), (2, ProxyRequest(session="s"))):
            with pytest.raises(UsageError):
                await pool.acquire(SITE, count, request)

    run(scenario, 5)


def test_a_late_release_of_an_expired_lease_is_rejected(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lost,) = await pool.acquire(SITE)
        clock.now += 59.9
        with pytest.raises(NoProxy):
            await pool.acquire(SITE)
        clock.now += 0.2
        (second,) = await pool.acquire(SITE)
        assert not await pool.release(lost, [Outcome(Blame.SITE, "403")]), "a late release changes nothing"
        assert await pool.renew(lost) is None
        assert await pool.release(second, [Outcome()])
        (view,) = await pool.targets()
        assert (view.leaked, view.stale, view.granted) == (1, 1, 2)

    run(scenario)


def test_an_error_lists_the_states_in_the_same_order_in_all_pools(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        one, two, _ = proxies(3)
        assert await pool.ban(SITE, one.key)
        assert await pool.ban(SITE, two.key, clock.now + 60)
        await pool.acquire(SITE)
        with pytest.raises(NoProxy, match=r"\(1 leased, 1 cooling, 1 banned\)"):
            await pool.acquire(SITE)

    run(scenario, 3)


def test_a_target_without_leases_learns_of_changes_to_its_proxies(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        one, two = proxies(2)
        for each in (one, two):
            assert await pool.ban(SITE, each.key, clock.now + 10)
        assert await pool.report_check(one.key, Outcome(Blame.UNFIT, "alters pages"))
        assert await pool.remove([two.key]) == 1
        clock.now += 20
        with pytest.raises(NoProxy, match="1 dead"):
            await pool.acquire(SITE)
        assert [view.target for view in await pool.targets()] == [SITE]

    run(scenario, 2)


def test_an_expired_lease_of_a_removed_proxy_counts_as_leaked(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE, lease_s=10.0)
        clock.now += 20
        assert await pool.remove([lease.proxy.key]) == 1
        assert [view.leaked for view in await pool.targets()] == [1]

    run(scenario, 2)


def test_views_show_no_expired_leases(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        await pool.acquire(SITE, lease_s=10.0)
        clock.now += 11.0
        assert [view.state for view in await pool.proxies(SITE)] == [ProxyState.READY]

    run(scenario)


def test_a_lease_can_be_renewed(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE, lease_s=10)
        for _ in range(5):
            clock.now += 9
            assert await pool.renew(lease, 10) == pytest.approx(clock.now + 10)
        assert await pool.release(lease)

    run(scenario)


def test_each_use_of_a_lease_counts(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        for outcomes in ([], [Outcome()], [Outcome(), Outcome(Blame.NOBODY, "404"), Outcome()]):
            (lease,) = await pool.acquire(SITE)
            await pool.release(lease, outcomes)
        await pool.acquire(SITE)
        (view,) = await pool.proxies(SITE)
        assert (view.uses, view.good, view.bad) == (1 + 1 + 3 + 1, 3, 0)

    run(scenario)


def test_the_blame_decides_where_a_proxy_cools_down(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease, [Outcome(Blame.SITE, "429", rest_s=100.0)])
        with pytest.raises(NoProxy, match="1 cooling"):
            await pool.acquire(SITE)
        (other,) = await pool.acquire("b.example")
        await pool.release(other, [Outcome(Blame.PROXY, "connection refused")])
        with pytest.raises(NoProxy):
            await pool.acquire("c.example")
        clock.now += 200
        states = Counter([view.state for view in await pool.proxies(SITE)])
        assert states == {ProxyState.HALF_OPEN: 1}
        assert await pool.acquire(SITE)

    run(scenario)


def test_a_proxy_that_fails_everywhere_is_dead_until_a_check_finds_it_working(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (proxy,) = proxies(1)
        other = Proxy("http", "10.9.9.9", 80, tags={"it": "works"})
        await pool.add([other])
        for _ in range(5):
            clock.now += 10_000
            (lease,) = await pool.acquire("b.example", 1, ProxyRequest(other.tags))
            await pool.release(lease, [Outcome()])
            (lease,) = await pool.acquire(SITE, 1, ProxyRequest(avoid=frozenset({other.key})))
            await pool.release(lease, [Outcome(Blame.PROXY, "connection refused")])
        clock.now += 100_000
        assert await pool.remove([other.key]) == 1
        with pytest.raises(NoProxy, match="1 dead"):
            await pool.acquire(SITE)
        (view,) = await pool.proxies()
        assert (view.state, view.reason) == (ProxyState.DEAD, "connection refused")
        assert await pool.report_check(proxy.key, Outcome(latency_s=0.2), "9.9.9.9")
        (view,) = await pool.proxies()
        assert (view.state, view.exit_ip) == (ProxyState.READY, "9.9.9.9")
        assert await pool.acquire(SITE)
        assert not await pool.report_check("nobody", Outcome())

    run(scenario)


def test_no_proxy_dies_while_none_can_be_reached(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        for outcome, times in ((Outcome(), 3), (Outcome(Blame.PROXY, "network unreachable"), 60)):
            for _ in range(times):
                clock.now += 100
                (lease,) = await pool.acquire(SITE)
                await pool.release(lease, [outcome])
        assert {view.state for view in await pool.proxies()} <= {ProxyState.READY, ProxyState.COOLING}
        clock.now += 80
        assert len(await pool.acquire(SITE)) == 1

    run(scenario, 3)


@pytest.mark.parametrize(
    ("between", "dies"),
    [
        (Outcome(), True),
        (Outcome(Blame.NOBODY), True),  # a tunnel that worked
        (Outcome(Blame.MISS, "broke", latency_s=0.1), True),
        (Outcome(Blame.MISS, "timeout"), False),  # it is unknown whether the proxy was reached
        (Outcome(Blame.NOBODY, "host not found"), False),
    ],
)
def test_a_proxy_dies_when_another_one_was_reached(run: Callable[..., None], between: Outcome, *, dies: bool) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        bad, other = proxies(2)
        for _ in range(7):
            clock.now += 10_000
            (lease,) = await pool.acquire("b.example", request=ProxyRequest(avoid=frozenset({bad.key})))
            await pool.release(lease, [between])
            if ProxyState.DEAD not in {view.state for view in await pool.proxies()}:
                (lease,) = await pool.acquire(SITE, request=ProxyRequest(avoid=frozenset({other.key})))
                await pool.release(lease, [Outcome(Blame.PROXY, "connection refused")])
        assert (ProxyState.DEAD in {view.state for view in await pool.proxies()}) is dies

    run(scenario, 2)


def test_a_check_that_reaches_its_judge_proves_that_our_network_works(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (proxy,) = proxies(1)
        for _ in range(5):
            clock.now += 10_000
            assert await pool.report_check(proxy.key, Outcome(Blame.PROXY, "connection refused"))
        assert [view.state for view in await pool.proxies()] == [ProxyState.DEAD]

    run(scenario)


def test_an_unfit_proxy_is_dead_at_once_until_a_check_finds_it_working(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (proxy,) = proxies(1)
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease)
        under_way = [(await pool.acquire(target, lease_s=1e6))[0] for target in ("c.example", "d.example")]
        assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit: alters the page"))
        clock.now += 100_000
        for target in (SITE, "b.example"):
            with pytest.raises(NoProxy):
                await pool.acquire(target)
        (view,) = await pool.proxies()
        assert (view.state, view.reason) == (ProxyState.DEAD, "not fit: alters the page")
        for outcome in (Outcome(), Outcome(Blame.PROXY, "connection refused")):
            await pool.release(under_way.pop(), [outcome])
            (view,) = await pool.proxies()
            assert (view.state, view.reason) == (ProxyState.DEAD, "not fit: alters the page"), (
                "outcomes of open leases change nothing"
            )
        assert await pool.report_check(proxy.key, Outcome())
        clock.now += 100  # the cool-down after the refused connection
        assert await pool.acquire(SITE)

    run(scenario)


def test_an_operator_can_ban_and_unban_a_proxy(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (proxy,) = proxies(1)
        assert await pool.ban(SITE, proxy.key, reason="complaint")
        with pytest.raises(NoProxy, match="1 banned"):
            await pool.acquire(SITE)
        assert await pool.unban(SITE, proxy.key)
        await pool.acquire(SITE)
        assert not await pool.ban(SITE, "nobody")
        assert not await pool.unban(SITE, "nobody")

    run(scenario)


def test_a_proxy_banned_by_an_operator_is_replaced(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        for until in (None, clock.now + 600):
            leases = [lease for _ in range(2) for lease in await pool.acquire(SITE)]
            for lease in leases:
                assert await pool.release(lease, [Outcome()])
                assert await pool.ban(SITE, lease.proxy.key, until)
        (last,) = await pool.acquire(SITE)
        waiting = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
        await asyncio.sleep(0)
        await pool.ban(SITE, last.proxy.key)
        async with asyncio.timeout(LONG_S / 2):
            assert len(await waiting) == 1

    run(scenario, 6, members=2)


def test_several_proxies_come_from_the_cheapest_tiers_that_have_enough(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        await pool.add([replace(each, host=f"dear-{each.host}", price_gb=1.0) for each in proxies(3)])
        leases = await pool.acquire(SITE, 4)
        assert sum(lease.proxy.price_gb for lease in leases) == 2.0, "there are too few cheap ones"
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, 2)  # there are enough, but all are leased
        await pool.release(leases[0])
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, 2)
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, 5)
        for lease in leases[1:]:
            await pool.release(lease)
        assert sum(lease.proxy.price_gb for lease in await pool.acquire(SITE, 2)) == 0.0

    run(scenario, 2)


def test_a_revived_proxy_is_leased_at_once(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease, [Outcome()])
        for _ in range(15):
            assert await pool.report_check(lease.proxy.key, Outcome(Blame.PROXY, "refused"))
            clock.now += 7200
        assert await pool.report_check(lease.proxy.key, Outcome(Blame.PROXY, "refused"))
        assert await pool.report_check(lease.proxy.key, Outcome())
        assert len(await pool.acquire(SITE)) == 1

    run(scenario)


def test_a_rotating_proxy_has_no_exit_address(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        one, two = proxies(2)
        for each in (one, two):
            assert await pool.report_check(each.key, Outcome(), "9.9.9.9")
        await pool.add([replace(two, tags={"rotating": "yes"})])
        assert await pool.report_check(two.key, Outcome(), "8.8.8.8")
        assert {view.exit_ip for view in await pool.proxies() if view.proxy.key == two.key} == {""}

    run(scenario, 2)


def test_a_leased_proxy_can_be_removed(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        assert await pool.remove([lease.proxy.key, "nobody"]) == 1
        assert not await pool.release(lease, [Outcome()])
        with pytest.raises(NoProxy, match="the pool has no proxies"):
            await pool.acquire(SITE)
        assert await pool.add(proxies(1)) == 1
        assert await pool.add(proxies(1)) == 0
        await pool.acquire(SITE)

    run(scenario)


def test_a_lease_has_the_tags_of_the_request(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        await pool.add([Proxy("http", "10.1.0.1", 1, tags={"country": "de", "provider": "acme"})])
        (lease,) = await pool.acquire(SITE, request=ProxyRequest({"country": "de"}))
        assert lease.proxy.host == "10.1.0.1"
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, request=ProxyRequest({"country": "de"}))
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, request=ProxyRequest({"country": "fr"}))
        await pool.release(lease)
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, request=ProxyRequest({"country": "de"}, avoid=frozenset({lease.proxy.key})))

    run(scenario, 3, members=2)


def test_targets_learn_of_changed_tags_and_prices(run: Callable[..., None]) -> None:
    """A source changes the country or the price of a proxy that is a member of a target."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        for _ in range(2):
            (lease,) = await pool.acquire(SITE)
            await pool.release(lease)
        await pool.add([Proxy("http", "10.0.0.1", 8080, tags={"country": "fr"})])
        (lease,) = await pool.acquire(SITE, request=ProxyRequest({"country": "fr"}))
        assert (lease.proxy.host, lease.proxy.tags) == ("10.0.0.1", {"country": "fr"})
        await pool.release(lease)
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, request=ProxyRequest({"country": "de"}))
        await pool.add([Proxy("http", "10.0.0.3", 8080, price_gb=1.0)])  # a new price
        await pool.add([Proxy("http", "10.0.0.2", 8080, price_gb=1.0)])
        hosts = set()
        for _ in range(12):
            (lease,) = await pool.acquire(SITE)
            await pool.release(lease, [Outcome()])
            hosts.add(lease.proxy.host)
        assert hosts == {"10.0.0.1"}, "the others are dearer now"

    run(scenario, 2)


def test_a_joining_proxy_shares_the_bans_of_its_exit(run: Callable[..., None]) -> None:
    """After a ban a target is refilled with the next proxy, not with another login on the same address."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        first, second, third = (each.key for each in proxies(3))
        for key, latency_s, exit_ip in ((first, 0.1, "9.9.9.9"), (second, 0.2, "9.9.9.9"), (third, 0.3, "8.8.8.8")):
            assert await pool.report_check(key, Outcome(latency_s=latency_s), exit_ip)
        (lease,) = await pool.acquire(SITE)
        assert lease.proxy.key == first
        await pool.release(lease, [Outcome(Blame.SITE, "403", 100.0)])
        (lease,) = await pool.acquire(SITE)
        assert lease.proxy.key == third
        views = {view.proxy.key: (view.state, view.reason) for view in await pool.proxies(SITE)}
        assert views[second] == (ProxyState.COOLING, "403, at the same exit")
        clock.now += 200
        assert {each.proxy.key for each in await pool.acquire(SITE, 2)} == {second, third}, (
            "the first proxy has only refused so far"
        )
        assert [each.proxy.key for each in await pool.acquire(SITE)] == [first]

    run(scenario, 3, members=1)


def test_a_proxy_with_the_tags_is_found_at_any_position_of_the_order(run: Callable[..., None]) -> None:
    """Only this proxy is used, so all others precede it in the order."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        german = Proxy("http", "10.9.9.9", 8080, tags={"country": "de"})
        await pool.add([german])
        (lease,) = await pool.acquire(SITE)
        await pool.release(lease)
        for _ in range(3):
            (lease,) = await pool.acquire(SITE, request=ProxyRequest({"country": "de"}))
            assert lease.proxy == german
            await pool.release(lease, [Outcome()])
            all_others = frozenset(each.key for each in proxies(100))
            (lease,) = await pool.acquire(SITE, request=ProxyRequest(avoid=all_others))
            assert lease.proxy == german
            await pool.release(lease, [Outcome()])

    run(scenario, 100)


def test_waiting_callers_are_served_in_order(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        order: list[int] = []

        async def one(number: int) -> None:
            (own,) = await pool.acquire(SITE, wait_s=LONG_S)
            order.append(number)
            await asyncio.sleep(0)
            await pool.release(own, [Outcome()])

        waiting = [asyncio.create_task(one(number)) for number in range(20)]
        await asyncio.sleep(0.01)
        assert not order
        await pool.release(lease, [Outcome()])
        await asyncio.gather(*waiting)
        assert order == list(range(20))

    run(scenario)


def waits_for_another(lose: Callable[[ProxyPool, Proxy], Awaitable[object]]) -> Scenario:
    """Return a scenario in which the only proxy of a target is lost while a caller waits, and another one joins."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        waiting = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
        await asyncio.sleep(0)
        await lose(pool, lease.proxy)
        async with asyncio.timeout(LONG_S / 2):
            (other,) = await waiting
        assert other.proxy != lease.proxy

    return scenario


def test_a_waiting_caller_gets_another_proxy_when_the_first_is_removed(run: Callable[..., None]) -> None:
    run(waits_for_another(lambda pool, proxy: pool.remove([proxy.key])), 2, members=1)


def test_a_waiting_caller_gets_another_proxy_when_the_first_is_unfit(run: Callable[..., None]) -> None:
    run(waits_for_another(lambda pool, proxy: pool.report_check(proxy.key, Outcome(Blame.UNFIT, "x"))), 2, members=1)


def test_a_waiting_caller_gets_another_proxy_when_the_first_cannot_be_reached(run: Callable[..., None]) -> None:
    async def lose(pool: ProxyPool, proxy: Proxy) -> None:
        (elsewhere,) = await pool.acquire("b.example")
        assert elsewhere.proxy == proxy
        await pool.release(elsewhere, [Outcome(Blame.PROXY, "refused")])

    run(waits_for_another(lose), 2, members=1)


def test_a_cancelled_caller_keeps_no_lease(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        for _ in range(3):
            waiter = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
            await asyncio.sleep(0.01)
            await pool.release(lease)  # grants the lease; the caller is cancelled before it gets the result
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
            (lease,) = await pool.acquire(SITE, wait_s=LONG_S)

    run(scenario)


def test_a_lease_granted_at_the_timeout_is_kept() -> None:
    """The lease is granted while the caller times out: no other caller has it, so it must not be lost."""

    async def main() -> None:
        pool = LocalPool()
        await pool.add(proxies(1))
        (lease,) = await pool.acquire(SITE)
        waiting = asyncio.create_task(pool.acquire(SITE, wait_s=1.0))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(asyncio.ensure_future, pool.release(lease))
        await asyncio.sleep(0)  # the next iteration of the loop grants it after the timeout
        time.sleep(1.1)  # noqa: ASYNC251  blocks the loop until the deadline has passed
        (lease,) = await waiting
        assert await pool.release(lease)
        assert [view.leases for view in await pool.targets()] == [0]

    asyncio.run(main())


def test_the_error_says_why_no_proxy_is_free(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        with pytest.raises(NoProxy, match="the pool has no proxies: lycosa proxies add FILE"):
            await pool.acquire(SITE, wait_s=0.05)
        waiter = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
        await asyncio.sleep(0.01)
        await pool.add(proxies(1))
        assert len(await waiter) == 1, "an added proxy is leased to the waiting caller"
        waiter = asyncio.create_task(pool.acquire(SITE, wait_s=LONG_S))
        await asyncio.sleep(0.01)
        await pool.close()
        with pytest.raises(NoProxy, match="closed"):
            await waiter

    run(scenario, 0)


def test_explanations_of_leased_and_blocked_proxies(run: Callable[..., None]) -> None:
    """Several proxies have different obstacles at once; in the end a proxy that is explained as the next is leased."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        all_proxies = proxies(9)
        assert {why for _, (_, why, *_) in await pool.explain(SITE)} == {Why.NEXT, Why.BEHIND}
        assert not await pool.targets(), "an explanation adds no target"
        (lease,) = await pool.acquire(SITE)
        others = [each for each in all_proxies if each != lease.proxy]
        cooling, banned, dead, paced, avoided = others[:5]
        await pool.ban(SITE, cooling.key, clock.now + 100, "429")
        await pool.ban(SITE, banned.key, reason="complaint")
        await pool.report_check(dead.key, Outcome(Blame.PROXY, "connection refused"))
        for _ in range(4):
            clock.now += 5000
            await pool.report_check(dead.key, Outcome(Blame.PROXY, "connection refused"))
        await pool.unban(SITE, cooling.key)
        await pool.ban(SITE, cooling.key, clock.now + 100, "429")
        (lease,) = await pool.acquire(
            SITE, request=ProxyRequest(session="s", avoid=_all_except(all_proxies, lease.proxy))
        )
        (brief,) = await pool.acquire(SITE, request=ProxyRequest(avoid=_all_except(all_proxies, paced)))
        await pool.release(brief, [Outcome()])
        verdicts = {
            proxy.key: verdict
            for proxy, verdict in await pool.explain(SITE, ProxyRequest(avoid=frozenset({avoided.key})))
        }
        assert len(verdicts) == len(all_proxies)
        assert verdicts[lease.proxy.key][:4] == (lease.proxy.key, Why.LEASED, ProxyState.LEASED, clock.now + 60)
        assert (verdicts[cooling.key].why, verdicts[cooling.key].until) == (Why.COOLING, clock.now + 100)
        assert (verdicts[cooling.key].reason, verdicts[banned.key].reason) == ("429", "complaint")
        assert (verdicts[banned.key].why, verdicts[dead.key].why) == (Why.BANNED, Why.DEAD)
        assert (verdicts[paced.key].why, verdicts[paced.key].until) == (Why.PACED, clock.now + 7)
        assert verdicts[avoided.key].why is Why.AVOIDED
        assert {each.verdict.why for each in await pool.explain(SITE, ProxyRequest({"country": "de"}))} == {Why.TAGS}
        session = {proxy.key: verdict.why for proxy, verdict in await pool.explain(SITE, ProxyRequest(session="s"))}
        assert Counter(session.values())[Why.NEXT] == 0, "the session has a proxy, which is leased already"
        assert session[avoided.key] is Why.SESSION
        next_ones = {each.proxy.key for each in await pool.explain(SITE) if each.verdict.why is Why.NEXT}
        assert (await pool.acquire(SITE))[0].proxy.key in next_ones

    run(scenario, 9, delay_s=7.0)


def _all_except(all_proxies: list[Proxy], one: Proxy) -> frozenset[str]:
    return frozenset(each.key for each in all_proxies if each != one)


def test_explanations_of_dearer_spare_and_joining_proxies(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        expensive = Proxy("http", "10.1.0.1", 1, price_gb=4.0)
        await pool.add([expensive])
        counts = Counter([(each.verdict.why, each.verdict.joins) for each in await pool.explain(SITE)])
        assert counts[Why.SPARE, False] == 4 - 3
        assert sum(count for (_, joins), count in counts.items() if joins) == 3
        await pool.acquire(SITE)
        await pool.ban(SITE, expensive.key, clock.now + 1, "x")
        clock.now += 2
        await pool.acquire(SITE)
        whys = {each.proxy.key: each.verdict for each in await pool.explain(SITE)}
        assert whys[expensive.key].why is Why.DEARER
        assert (whys[expensive.key].tier, whys[expensive.key].place, whys[expensive.key].state) == (
            1,
            1,
            ProxyState.HALF_OPEN,
        )

    run(scenario, 3, members=3)


def test_dead_proxies_are_forgotten_after_a_time_and_leased_ones_after_their_release(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        working, dead, *leased = proxies(4)
        for proxy in (dead, *leased):
            assert await pool.ban("c.example", proxy.key), "it is a member of this target, too"
        lease = {each.proxy.key: each for each in await pool.acquire(SITE, 4, lease_s=200.0)}
        for proxy in (working, dead):
            await pool.release(lease[proxy.key])
        for proxy in (dead, *leased):
            assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit: alters the page"))
        clock.now += 99.9
        assert await pool.forget_dead(100.0) == []
        clock.now += 0.2
        assert await pool.forget_dead(100.0) == [dead.key]
        assert await pool.forget_dead(100.0) == [], "the others are leased"
        assert {view.proxy.key for view in await pool.proxies()} == {each.key for each in (working, *leased)}
        assert {view.proxy.key for view in await pool.proxies("c.example")} <= {each.key for each in leased}
        assert await pool.count() == 3
        assert await pool.release(lease[leased[0].key], [Outcome()])
        assert await pool.forget_dead(100.0) == [leased[0].key]
        clock.now += 100.0
        assert await pool.forget_dead(100.0) == [leased[1].key], "an expired lease does not count"
        assert await pool.count() == 1

    run(scenario, 4)


def test_the_time_until_a_dead_proxy_is_forgotten_starts_at_its_last_death(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (proxy,) = proxies(1)
        for _ in range(2):
            assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit"))
            clock.now += 60.0
            assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit")), (
                "a dead proxy does not die again"
            )
            assert await pool.report_check(proxy.key, Outcome(Blame.PROXY, "refused"))
            assert await pool.forget_dead(100.0) == []
            assert await pool.report_check(proxy.key, Outcome())
        clock.now += 1_000.0
        assert await pool.forget_dead(0.0) == [], "it is not dead"
        assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit"))
        clock.now += 60.0
        assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit"))
        clock.now += 60.0
        assert await pool.forget_dead(100.0) == [proxy.key]

    run(scenario)


def test_a_forgotten_proxy_that_is_added_again_is_new(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (proxy,) = proxies(1)
        await pool.release((await pool.acquire(SITE))[0], [Outcome(Blame.SITE, "403", 600.0)])
        assert await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit"))
        assert await pool.forget_dead(0.0) == [proxy.key]
        with pytest.raises(NoProxy):
            await pool.acquire(SITE)
        assert await pool.add([proxy]) == 1
        assert [(view.state, view.uses, view.reason) for view in await pool.proxies()] == [(ProxyState.READY, 0, "")]
        (lease,) = await pool.acquire(SITE, wait_s=LONG_S)
        assert lease.proxy == proxy

    run(scenario)


def test_many_dead_proxies_are_forgotten_in_batches(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        for proxy in proxies(1_200):
            await pool.report_check(proxy.key, Outcome(Blame.UNFIT, "not fit"))
        forgotten: list[str] = []
        while batch := await pool.forget_dead(0.0):
            forgotten += batch
        assert sorted(forgotten) == sorted(each.key for each in proxies(1_200))
        assert await pool.count() == 0

    run(scenario, 1_200)


def test_unchecked_proxies_are_leased_after_a_good_check(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        known, new = proxies(2)
        assert await pool.add([known, new], unchecked=True) == 1
        (lease,) = await pool.acquire(SITE)
        assert lease.proxy == known, "known proxies stay as they are"
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, wait_s=0.01)
        found = {view.proxy.key: (view.state, view.reason) for view in await pool.proxies()}
        assert found[new.key] == (ProxyState.DEAD, "not checked yet")
        for failed in (Outcome(Blame.MISS, "broke off"), Outcome(Blame.PROXY, "refused")):
            await pool.report_check(new.key, failed)
            (reason,) = [view.reason for view in await pool.proxies() if view.proxy.key == new.key]
            assert reason == "broke off", "the reason of its first check"
        assert await pool.report_check(new.key, Outcome())
        assert (await pool.acquire(SITE, wait_s=LONG_S))[0].proxy == new

    run(scenario)


def test_the_proxy_of_a_session_has_the_tags_of_the_request(run: Callable[..., None]) -> None:
    """A session keeps its proxy as long as the proxy fits; `avoid` applies only when the session gets a new proxy."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        german, french = (replace(proxies(2)[n], tags={"country": of}) for n, of in enumerate(("de", "fr")))
        await pool.add([german, french])

        async def acquire_for_session(*avoid: str, **tags: str) -> tuple[str, bool]:
            (lease,) = await pool.acquire(SITE, request=ProxyRequest(tags, session="ann", avoid=frozenset(avoid)))
            await pool.release(lease, [Outcome()])
            clock.now += 10
            return lease.proxy.key, lease.rebound

        assert await acquire_for_session(country="de") == (german.key, False)
        assert await acquire_for_session() == (german.key, False)
        assert await acquire_for_session(country="fr") == (french.key, True)
        assert await acquire_for_session() == (french.key, False)
        assert await acquire_for_session(french.key) == (french.key, False)
        with pytest.raises(NoProxy):
            await acquire_for_session(german.key, country="de")
        verdicts = {
            proxy.key: why.why
            for proxy, why in await pool.explain(SITE, ProxyRequest({"country": "de"}, session="ann"))
        }
        assert verdicts == {german.key: Why.NEXT, french.key: Why.TAGS}
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, request=ProxyRequest({"country": "it"}, session="ann"))

    run(scenario, 0)


REFUSED = Outcome(Blame.SITE, "403", rest_s=1.0)


async def leased_often(pool: ProxyPool, clock: ManualClock, request: ProxyRequest = ANY) -> Counter[str]:
    """Lease a hundred times in turn, each with a good result. Return how often each proxy was leased."""
    counts = Counter[str]()
    for _ in range(100):
        [leased] = await pool.acquire(SITE, request=request)
        counts[leased.proxy.key] += 1
        clock.now += 0.1
        await pool.release(leased, [Outcome()])
    return counts


def test_a_proxy_that_only_ever_refused_comes_after_all_that_are_free(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        refusing = await pool.acquire(SITE, 12)
        for lease in refusing:
            await pool.release(lease, [REFUSED])
        clock.now += 60.0
        keys = {lease.proxy.key for lease in refusing}
        counts = await leased_often(pool, clock)
        assert keys.isdisjoint(counts)
        assert len(counts) == 4
        for tags in ({}, {"country": "de"}):
            found = [each for each in await pool.explain(SITE, ProxyRequest(tags)) if each.proxy.key in keys]
            assert {each.verdict.why for each in found} <= {Why.BEHIND, Why.TAGS}

    run(scenario, count=16)


def test_a_proxy_that_refused_is_tried_again_when_no_better_one_is_free(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        [refusing] = await pool.acquire(SITE)
        await pool.release(refusing, [REFUSED])
        clock.now += 60.0
        leases = await pool.acquire(SITE, 4)
        assert leases[-1].proxy == refusing.proxy  # the better ones are chosen first
        await pool.release(leases[-1], [Outcome()])
        for lease in leases[:-1]:
            await pool.release(lease, [Outcome()])
        assert refusing.proxy.key in await leased_often(pool, clock)  # now it has worked

    run(scenario, count=4)


def test_an_operator_who_lifts_a_ban_restores_the_place_of_a_proxy(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        [refusing] = await pool.acquire(SITE)
        await pool.release(refusing, [REFUSED])
        clock.now += 60.0
        assert await pool.unban(SITE, refusing.proxy.key)
        assert refusing.proxy.key in await leased_often(pool, clock)

    run(scenario, count=4)


def test_a_proxy_that_worked_before_it_refused_keeps_its_place(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        [refusing] = await pool.acquire(SITE)
        await pool.release(refusing, [Outcome(), REFUSED])
        clock.now += 60.0
        assert refusing.proxy.key in await leased_often(pool, clock)

    run(scenario, count=4)


def test_better_proxies_come_first_among_those_with_the_tags(run: Callable[..., None]) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        tagged = [replace(each, tags={"country": "de"}) for each in proxies(12)[:6]]
        await pool.add(tagged)
        wanted = ProxyRequest({"country": "de"})
        refusing = await pool.acquire(SITE, 5, wanted)
        for lease in refusing:
            await pool.release(lease, [REFUSED])
        clock.now += 60.0
        counts = await leased_often(pool, clock, wanted)
        assert counts.keys() == {each.key for each in tagged} - {lease.proxy.key for lease in refusing}

    run(scenario, count=12)
