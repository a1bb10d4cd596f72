"""Two races and an error of a simpler design cannot happen in any pool.

That design kept all proxies of a site in one sorted set, ordered by their number of uses. A worker took a proxy and its
number of uses out of the set, and later put it back with the number increased; an empty set was filled from the global
set.
(tests/proxies/sim/test_workers.py runs a hundred workers in several processes.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from lycosa.core.errors import NoProxy
from lycosa.proxies.core.outcomes.outcome import Outcome
from lycosa.proxies.core.pool.target import ProxyRequest
from lycosa.proxies.core.proxy import Proxy
from lycosa.proxies.ports import ProxyPool
from tests.proxies.contracts.test_pool import SITE, ManualClock, proxies, run

__all__ = ["run"]


async def use(pool: ProxyPool, times: int, session: str = "") -> str:
    """Use a proxy this many times. Return its key."""
    for _ in range(times):
        (lease,) = await pool.acquire(SITE, request=ProxyRequest(session=session))
        assert await pool.release(lease, [Outcome()])
    return lease.proxy.key


async def uses(pool: ProxyPool) -> dict[str, int]:
    return {view.proxy.key: view.uses for view in await pool.proxies(SITE)}


def test_filling_a_target_does_not_reset_counts(run: Callable[..., None]) -> None:
    """A proxy with 11 uses is leased for its 12th while the site is filled: that design reset it to 1 use."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        key = await use(pool, 11)
        (lease,) = await pool.acquire(SITE)
        assert await pool.add(proxies(1)) == 0  # now all targets may be refilled
        with pytest.raises(NoProxy):
            await pool.acquire(SITE)
        assert await pool.release(lease, [Outcome()])
        assert await uses(pool) == {key: 12}

    run(scenario)


def test_filling_a_target_keeps_the_order_of_use(run: Callable[..., None]) -> None:
    """A refill of that design reset a proxy with 12 uses to none, so it was leased before one with 3 uses."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        heavy, light = await use(pool, 3, "heavy"), await use(pool, 3, "light")
        await use(pool, 8, "heavy")
        (lease,) = await pool.acquire(SITE, request=ProxyRequest(session="heavy"))
        assert (lease.proxy.key, lease.proxy.key != light) == (heavy, True)
        await pool.add(proxies(2))
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, 2)  # refills the target
        await pool.release(lease, [Outcome()])
        assert await uses(pool) == {heavy: 12, light: 3}
        assert (await pool.acquire(SITE))[0].proxy.key == light

    run(scenario, 2)


def test_filling_a_target_does_not_lease_a_leased_proxy_again(run: Callable[..., None]) -> None:
    """A worker has the only proxy, so its site has none: that design refilled it, and leased the proxy again."""

    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        (lease,) = await pool.acquire(SITE)
        for _ in range(3):
            await pool.add(proxies(1))
            clock.now += 10
            with pytest.raises(NoProxy, match="1 leased"):
                await pool.acquire(SITE)
        assert len(await pool.acquire("b.example")) == 1, "another site may lease it"
        assert await pool.release(lease)
        assert (await pool.acquire(SITE))[0].proxy == lease.proxy

    run(scenario)


def test_a_late_release_is_refused_and_logged(run: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(pool: ProxyPool, clock: ManualClock) -> None:
        await pool.add([Proxy("http", "10.9.9.9", 80, "ann", "secret")])
        (lease,) = await pool.acquire(SITE, lease_s=5)
        clock.now += 6
        (second,) = await pool.acquire(SITE)
        with caplog.at_level(logging.WARNING):
            for _ in range(10):
                assert not await pool.release(lease, [Outcome()])
        assert await uses(pool) == {lease.proxy.key: 2}
        assert await pool.release(second)

    run(scenario, 0)
    assert [target_of(record) for record in caplog.records] == ["a.example"], "one warning for a while"
    assert "secret" not in caplog.text


def target_of(record: Any) -> str:
    """Return the target in a log message."""
    return str(record.args[1])
