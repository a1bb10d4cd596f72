"""Pools for threads: `with open_pool(...) as pool`, `with pool.lease(...) as proxy` (P6)."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from lycosa.app.proxies import leasing
from lycosa.core.errors import StateError, UsageError
from lycosa.pool import BlockingPool, NoProxy, open_pool
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.ports import ProxyLease

SITE = "a.example"
LONG_S = 60.0
THREADS, LEASES_EACH = 8, 20


@pytest.fixture(params=["memory:", "folder"])
def pool(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BlockingPool]:
    """A pool with three proxies."""
    address = tmp_path / "pool" if request.param == "folder" else request.param
    with open_pool(address, {}, create=True) as opened:
        assert opened.add(*(f"http://10.0.0.{number}:8080" for number in range(3))) == 3
        yield opened
    assert not [each for each in threading.enumerate() if each.name == "lycosa-pool"]


def test_threads_share_a_pool_and_no_proxy_is_leased_twice(pool: BlockingPool) -> None:
    held, lock, met_twice = Counter[str](), threading.Lock(), threading.Event()
    together = threading.Barrier(THREADS)

    def work() -> None:
        together.wait(LONG_S)
        for _ in range(LEASES_EACH):
            with pool.lease(SITE, wait_s=LONG_S) as proxy:
                with lock:
                    held[proxy.url] += 1
                    if held[proxy.url] > 1:
                        met_twice.set()
                proxy.report(200)
                with lock:
                    held[proxy.url] -= 1

    with ThreadPoolExecutor(THREADS) as executor:
        for done in [executor.submit(work) for _ in range(THREADS)]:
            done.result(LONG_S)
    assert not met_twice.is_set()
    views = pool.proxies(SITE)
    assert sum(view.uses for view in views) == sum(view.good for view in views) == THREADS * LEASES_EACH
    assert {view.state for view in views} == {ProxyState.READY}
    assert [view.leases for view in pool.targets()] == [0]


def test_an_exception_that_leaves_the_block_is_reported(pool: BlockingPool) -> None:
    with pytest.raises(ConnectionRefusedError), pool.lease(SITE) as proxy:
        raise ConnectionRefusedError
    (view,) = [each for each in pool.proxies(SITE) if each.proxy.name == proxy.name]
    assert (view.state, view.reason) == (ProxyState.COOLING, "ConnectionRefusedError")
    for error in (KeyboardInterrupt, StopIteration, SystemExit, ValueError):
        with pytest.raises(error), pool.lease(SITE):
            raise error
    assert [view.leases for view in pool.targets()] == [0]


def test_the_wait_for_a_proxy_ends(pool: BlockingPool) -> None:
    with pool.lease(SITE, n=3) as proxies:
        assert len({each.url for each in proxies}) == 3
        with pytest.raises(NoProxy, match="3 leased"), pool.lease(SITE, wait_s=0.05):
            pass
    with pytest.raises(UsageError, match="write a string"), pool.lease(""):
        pass


def test_a_waiting_thread_gets_a_released_proxy(pool: BlockingPool) -> None:
    def lease() -> str:
        with pool.lease(SITE, wait_s=LONG_S) as proxy:
            return proxy.url

    with ThreadPoolExecutor(1) as executor:
        with pool.lease(SITE, n=3) as proxies:
            waiting: Future[str] = executor.submit(lease)
        assert waiting.result(LONG_S) in {each.url for each in proxies}


def test_a_lease_is_renewed_while_its_block_blocks(pool: BlockingPool, monkeypatch: pytest.MonkeyPatch) -> None:
    port, renewed = pool._pool.port, threading.Semaphore(0)
    renew = port.renew

    async def counted(lease: ProxyLease, lease_s: float | None = None) -> float | None:
        deadline = await renew(lease, lease_s)
        if deadline is not None and deadline > lease.deadline:
            renewed.release()
        return deadline

    monkeypatch.setattr(leasing, "RENEWALS", 300)
    monkeypatch.setattr(port, "renew", counted)
    with pool.lease(SITE, n=3, lease_s=30.0) as proxies:
        for _ in range(3 * len(proxies)):
            assert renewed.acquire(timeout=LONG_S)
    assert not any(each.is_lost for each in proxies)


def test_operators_can_change_the_pool(pool: BlockingPool) -> None:
    key = pool.proxies()[0].proxy.key
    assert pool.ban(SITE, key)
    assert pool.unban(SITE, key)
    assert pool.remove(key) == 1
    assert len(pool.proxies()) == 2


def test_closing_the_pool_ends_the_wait_of_other_threads(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as executor:
        with open_pool(tmp_path / "pool", create=True) as pool:
            waiting = executor.submit(pool.lease(SITE, wait_s=LONG_S).__enter__)
            while not pool.targets():
                pass  # until the thread waits
        with pytest.raises((NoProxy, StateError)):
            waiting.result(LONG_S)
    with pytest.raises(StateError, match="the pool is closed"):
        pool.proxies()
    with pytest.raises(StateError, match="the pool is closed"), pool.lease(SITE):
        pass


def test_a_pool_that_cannot_be_opened_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no pool"), open_pool(tmp_path / "none"):
        pass
    assert not [each for each in threading.enumerate() if each.name == "lycosa-pool"]
