"""The leases of proxies in a crawl: how they are waited for, renewed and always released; reports of outages."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from lycosa.core.errors import CloseSpider, NoProxyYet
from lycosa.crawl.fetching.proxying.leaser import ProxyLeaser
from lycosa.crawl.fetching.proxying.selector import ProxySelector
from lycosa.infra.clock import Clock
from lycosa.proxies.core.outcomes.outcome import Blame, Outcome
from lycosa.proxies.core.policy import TargetPolicy
from lycosa.proxies.core.proxy import parse_proxy
from lycosa.proxies.memory.pool import LocalPool
from lycosa.proxies.ports import ProxyLease
from tests.virtual import VirtualLoop

SHOP = ProxySelector("shop.example")
A, B = parse_proxy("10.0.0.1:80"), parse_proxy("10.0.0.2:80")


class SlowPool(LocalPool):
    """A pool whose releases take a while."""

    def __init__(self, policy_of: Callable[[str], TargetPolicy], now: Callable[[], float]) -> None:
        super().__init__(policy_of, now)
        self.released = asyncio.Event()

    async def release(self, lease: ProxyLease, outcomes: Sequence[Outcome] = ()) -> bool:
        await asyncio.sleep(0.01)
        done = await super().release(lease, outcomes)
        self.released.set()
        return done


def run(
    scenario: Callable[[ProxyLeaser, SlowPool], Awaitable[None]],
    *,
    wait_s: float | None = 60.0,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    **policy: Any,
) -> None:
    """Run a scenario. `loop_factory` may be `VirtualLoop`, for virtual time."""

    async def main() -> None:
        time = asyncio.get_running_loop().time
        clock = Clock(time, time) if loop_factory else Clock()
        pool = SlowPool(lambda _: TargetPolicy(**policy), clock.now)
        leaser = ProxyLeaser(pool, lambda _: (), clock, tries=5, wait_max_s=wait_s)
        try:
            async with asyncio.timeout(30):
                await scenario(leaser, pool)
        finally:
            await leaser.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        runner.run(main())


async def lease_count(pool: LocalPool) -> int:
    return sum(view.leases for view in await pool.targets())


async def acquire_error(leaser: ProxyLeaser) -> Exception:
    with pytest.raises((NoProxyYet, CloseSpider)) as caught:
        await leaser.acquire(SHOP)
    return caught.value


def test_a_failed_proxy_is_avoided_while_there_is_another() -> None:
    async def scenario(leaser: ProxyLeaser, pool: SlowPool) -> None:
        await pool.add([A, B])
        first = await leaser.acquire(SHOP, frozenset({A.key}))
        assert first.proxy == B
        second = await leaser.acquire(SHOP, frozenset({A.key}))
        assert second.proxy == A, "better a failed proxy than none"

    run(scenario)


def test_a_lease_is_renewed_while_its_transfer_lasts() -> None:
    async def scenario(leaser: ProxyLeaser, pool: SlowPool) -> None:
        await pool.add([A])
        lease = await leaser.acquire(SHOP)
        with pytest.raises(NoProxyYet):  # waits longer than the lease would last without renewals
            await leaser.acquire(SHOP)
        [view] = await pool.targets()
        assert (view.leases, view.leaked) == (1, 0)
        assert await leaser.release(lease, [Outcome(Blame.NONE)])
        assert not await leaser.release(lease, [Outcome(Blame.NONE)])
        assert await lease_count(pool) == 0
        assert (await leaser.acquire(SHOP)).proxy == A

    run(scenario, lease_s=0.3, wait_s=4.0, loop_factory=VirtualLoop)  # waits for at most a quarter of `wait_s`


def test_a_lease_without_renewal_expires() -> None:
    async def scenario(leaser: ProxyLeaser, pool: SlowPool) -> None:
        await pool.add([A])
        lease = (await pool.acquire(SHOP.target))[0]
        assert (await leaser.acquire(SHOP)).proxy == A, "it waits until the first lease has expired"
        assert not await pool.release(lease)
        assert (await pool.targets())[0].leaked == 1

    run(scenario, lease_s=0.2)


def test_a_cancelled_transfer_releases_its_lease() -> None:
    async def scenario(leaser: ProxyLeaser, pool: SlowPool) -> None:
        await pool.add([A])
        acquired = asyncio.Event()

        async def work() -> None:
            lease = await leaser.acquire(SHOP)
            acquired.set()
            try:
                await asyncio.Event().wait()
            finally:
                await leaser.release(lease, ())

        task = asyncio.create_task(work())
        await acquired.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()  # during the release
        await asyncio.gather(task, return_exceptions=True)
        await pool.released.wait()
        assert await lease_count(pool) == 0

    run(scenario)


def test_an_empty_pool_is_reported_at_once_and_ends_the_crawl_after_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(leaser: ProxyLeaser, _pool: SlowPool) -> None:
        with pytest.raises(NoProxyYet, match="no proxies") as caught:
            await leaser.acquire(SHOP)
        assert caught.value.until - Clock().now() <= 0.4
        assert len(caplog.messages) == 1
        assert "waits, for up to 0.4 s (proxy_wait)" in caplog.messages[0]
        while not isinstance(error := await acquire_error(leaser), CloseSpider):
            assert isinstance(error, NoProxyYet)
            await asyncio.sleep(0.05)
        assert (str(error), len(caplog.messages)) == ("no proxy", 2)

    run(scenario, wait_s=0.4)


def test_the_end_of_an_outage_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(leaser: ProxyLeaser, pool: SlowPool) -> None:
        with pytest.raises(NoProxyYet):
            await leaser.acquire(SHOP)
        assert "the crawl waits" in caplog.messages[0]
        assert not caplog.messages[0].endswith("(proxy_wait)")
        await pool.add([A])
        await leaser.acquire(SHOP)
        assert len(caplog.messages) == 1, "the leased proxy may be dead, too"
        leaser.proxy_worked()
        leaser.proxy_worked()
        assert len(caplog.messages) == 2
        assert caplog.messages[1].startswith("proxies work again, after")

    run(scenario, wait_s=None)
