"""Two races and an error of a simpler design cannot happen in any pool.

That design kept all proxies of a site in one sorted set by their count. A worker took one out with its count, and put
it back with one more; an empty set was filled from the global one. (tests/proxies/sim/test_workers.py tries it with a
hundred workers in several processes.)
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
from tests.proxies.contracts.test_pool import SITE, ManualClock, play, proxies

__all__ = ["play"]


async def used(pool: ProxyPool, times: int, session: str = "") -> str:
    """Use a proxy so many times. Return its key."""
    for _ in range(times):
        (lease,) = await pool.acquire(SITE, request=ProxyRequest(session=session))
        assert await pool.release(lease, [Outcome()])
    return lease.proxy.key


async def uses(pool: ProxyPool) -> dict[str, int]:
    return {view.proxy.key: view.uses for view in await pool.proxies(SITE)}


def test_filling_a_target_does_not_reset_counts(play: Callable[..., None]) -> None:
    """A proxy with 11 uses is leased for its 12th while the site is filled: that design reset it to 1 use."""

    async def story(pool: ProxyPool, clock: ManualClock) -> None:
        key = await used(pool, 11)
        (lease,) = await pool.acquire(SITE)
        assert await pool.add(proxies(1)) == 0  # all sites may be filled up anew
        with pytest.raises(NoProxy):
            await pool.acquire(SITE)
        assert await pool.release(lease, [Outcome()])
        assert await uses(pool) == {key: 12}

    play(story)


def test_filling_a_target_keeps_the_order_of_use(play: Callable[..., None]) -> None:
    """A proxy with 12 uses, released after a fill that had reset it to none, was leased before one with 3."""

    async def story(pool: ProxyPool, clock: ManualClock) -> None:
        much, little = await used(pool, 3, "much"), await used(pool, 3, "little")
        await used(pool, 8, "much")
        (lease,) = await pool.acquire(SITE, request=ProxyRequest(session="much"))
        assert (lease.proxy.key, lease.proxy.key != little) == (much, True)
        await pool.add(proxies(2))
        with pytest.raises(NoProxy):
            await pool.acquire(SITE, 2)  # which fills up
        await pool.release(lease, [Outcome()])
        assert await uses(pool) == {much: 12, little: 3}
        assert (await pool.acquire(SITE))[0].proxy.key == little

    play(story, 2)


def test_filling_a_target_does_not_lease_a_leased_proxy_again(play: Callable[..., None]) -> None:
    """A has the only proxy, so the site has none: that design filled it, and C got the proxy of A."""

    async def story(pool: ProxyPool, clock: ManualClock) -> None:
        (held,) = await pool.acquire(SITE)
        for _ in range(3):
            await pool.add(proxies(1))
            clock.now += 10
            with pytest.raises(NoProxy, match="1 leased"):
                await pool.acquire(SITE)
        assert len(await pool.acquire("b.example")) == 1, "another site may lease it"
        assert await pool.release(held)
        assert (await pool.acquire(SITE))[0].proxy == held.proxy

    play(story)


def test_a_late_release_is_refused_and_logged(play: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    async def story(pool: ProxyPool, clock: ManualClock) -> None:
        await pool.add([Proxy("http", "10.9.9.9", 80, "ann", "secret")])
        (lease,) = await pool.acquire(SITE, lease_s=5)
        clock.now += 6
        (after,) = await pool.acquire(SITE)
        with caplog.at_level(logging.WARNING):
            for _ in range(10):
                assert not await pool.release(lease, [Outcome()])
        assert await uses(pool) == {lease.proxy.key: 2}
        assert await pool.release(after)

    play(story, 0)
    assert [target_of(record) for record in caplog.records] == ["a.example"], "one warning, and then none for a while"
    assert "secret" not in caplog.text


def target_of(record: Any) -> str:
    """Return the target in a log message."""
    return str(record.args[1])
