"""Pools for programs: a lease is a `with` block; it is renewed, takes reports, and is always released."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from lycosa.app.proxies import leasing
from lycosa.app.proxies.leasing import Pool
from lycosa.core.errors import BadProxy, BadSetting, NoProxy, UsageError
from lycosa.pool import Outcome, open_pool
from lycosa.proxies.core.pool.target_state import ProxyState
from lycosa.proxies.core.project_policies import Policies, policies_from
from lycosa.proxies.memory.pool import LocalPool
from tests.proxies.contracts.test_pool import ManualClock

SITE = "a.example"
LONG_S = 20.0


def run(
    scenario: Callable[[Pool, ManualClock], Awaitable[None]], count: int = 1, policies: Policies | None = None
) -> None:
    """Run a scenario on a pool with a manual clock."""

    async def main() -> None:
        clock = ManualClock()
        used_policies = policies or Policies()
        port = LocalPool(used_policies.policy_of, clock)
        pool = Pool(port, used_policies)
        assert await pool.add(*(f"http://ann:secret@10.0.0.{number}:8080" for number in range(count))) == count
        await scenario(pool, clock)
        await port.close()

    asyncio.run(main())


def test_a_lease_lasts_for_a_block(tmp_path: Path) -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        async with pool.lease(SITE) as proxy:
            assert (proxy.url, proxy.target) == ("http://ann:secret@10.0.0.0:8080", SITE)
            assert proxy.proxies == {"http": proxy.url, "https": proxy.url}
            assert "secret" not in f"{proxy!r} {proxy.name}"
            with pytest.raises(NoProxy, match=r"1 leased"):
                async with pool.lease(SITE, wait_s=0.0):
                    pass
        async with pool.lease(SITE, wait_s=0.0):
            pass

    run(scenario)


def test_each_request_of_a_lease_is_reported_and_counted() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        async with pool.lease(SITE) as proxy:
            assert proxy.report(200, latency_s=0.25) == Outcome(latency_s=0.25)
            assert proxy.report(404).blame == "nobody"
            assert proxy.report(blame="none", latency_s=0.25) == Outcome(latency_s=0.25)
            assert proxy.report(ConnectionResetError()).blame == "miss"
            assert proxy.report(ValueError("mine")) == Outcome(leasing.Blame.NOBODY, "ValueError")
            with pytest.raises(UsageError, match="'unfit' is not a blame: write one of none, "):
                proxy.report(blame="unfit")
        (view,) = await pool.proxies(SITE)
        assert (view.uses, view.good, view.bad, view.latency_s) == (5, 2, 1, 0.25)
        async with pool.lease(SITE) as proxy:
            proxy.report(403)
        (view,) = await pool.proxies(SITE)
        assert (view.uses, view.state, view.reason) == (6, ProxyState.COOLING, "403")

    run(scenario)


def test_the_latency_is_measured_from_the_lease_if_nobody_reports_one() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        began = time.monotonic()
        async with pool.lease(SITE) as proxy:
            await asyncio.sleep(0.05)
            measured_s = proxy.report(200).latency_s
            assert measured_s is not None
            assert 0.05 <= measured_s <= time.monotonic() - began
            assert proxy.report(200).latency_s is None, "only the first report starts with the lease"
        (view,) = await pool.proxies(SITE)
        assert view.latency_s == measured_s
        (view,) = await pool.proxies()
        assert view.latency_s == measured_s, "in the global pool too"

    run(scenario)


def test_failed_transfers_have_no_measured_latency() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        async with pool.lease(SITE) as proxy:
            assert proxy.report(ConnectionResetError()).latency_s is None
            assert proxy.report(200).latency_s is None

    run(scenario)


def test_the_rules_of_a_target_judge_responses() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        async with pool.lease("www.a.example") as proxy:
            outcome = proxy.report(200, body=b"<h1>Unusual traffic</h1>")
            assert (outcome.blame, outcome.reason) == (leasing.Blame.SITE, "soft ban")

    rule = {"blame": "site", "reason": "soft ban", "body": "(?i)unusual traffic"}
    run(scenario, policies=policies_from({"targets": {"a.example": {"rules": [rule]}}}))


def test_an_exception_is_reported_if_it_is_about_the_proxy() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        with pytest.raises(ValueError, match="mine"):
            async with pool.lease(SITE):
                raise ValueError("mine")
        (view,) = await pool.proxies(SITE)
        assert (view.state, view.uses, view.good, view.bad) == (ProxyState.READY, 1, 0, 0)
        with pytest.raises(ConnectionRefusedError):
            async with pool.lease(SITE):
                raise ConnectionRefusedError
        (view,) = await pool.proxies(SITE)
        assert (view.state, view.reason) == (ProxyState.COOLING, "ConnectionRefusedError")

    run(scenario)


def test_several_proxies_can_be_leased_together() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        async with pool.lease(SITE, n=3) as proxies:
            assert len({each.url for each in proxies}) == 3
            proxies[0].report(403)
        states = sorted(view.state for view in await pool.proxies(SITE))
        assert states == [ProxyState.COOLING, ProxyState.READY, ProxyState.READY]
        with pytest.raises(ConnectionRefusedError):
            async with pool.lease(SITE, n=2):
                raise ConnectionRefusedError  # the error may be about either of the two proxies
        assert states == sorted(view.state for view in await pool.proxies(SITE))
        async with pool.lease(SITE, n=1) as proxies:
            assert len(proxies) == 1
        with pytest.raises(UsageError, match="0 proxies at once"):
            async with pool.lease(SITE, n=0):
                pass

    run(scenario, 3)


def test_sessions_tags_and_avoided_proxies_select_the_proxy() -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        await pool.add("http://10.1.0.1:1 country=de")
        async with pool.lease(SITE, session="s") as first:
            assert not first.rebound
        async with pool.lease(SITE, session="s") as second:
            assert second.url == first.url
        async with pool.lease(SITE, tags={"country": "de"}) as german:
            assert german.tags == {"country": "de"}
        async with pool.lease(SITE, avoid=[german.lease.proxy.key]) as other:
            assert other.url != german.url
        with pytest.raises(BadProxy):
            await pool.add("nonsense")
        assert await pool.ban(SITE, german.lease.proxy.key)
        assert await pool.unban(SITE, german.lease.proxy.key)
        assert await pool.remove(german.lease.proxy.key) == 1
        assert [view.target for view in await pool.targets()] == [SITE]

    run(scenario, 3)


def test_a_lease_is_renewed_while_its_block_runs() -> None:
    async def scenario(pool: Pool, clock: ManualClock) -> None:
        async with pool.lease(SITE, lease_s=0.3) as proxy:
            for _ in range(4):
                clock.now += 0.25
                await until(lambda: lease_deadline(pool) > clock.now + 0.2)
        assert not proxy.is_lost
        (view,) = await pool.targets()
        assert (view.leaked, view.stale) == (0, 0)

    run(scenario)


def lease_deadline(pool: Pool) -> float:
    """Return the deadline of the current lease."""
    assert isinstance(pool.port, LocalPool)
    return pool.port._pool.targets[SITE].parts()[1].next_deadline() or 0.0


async def until(is_met: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not is_met():  # noqa: ASYNC110  the pool has no event for it
            await asyncio.sleep(0.01)


def test_a_lost_lease_is_reported() -> None:
    async def scenario(pool: Pool, clock: ManualClock) -> None:
        async with pool.lease(SITE, lease_s=0.3) as proxy:
            clock.now += 1.0
            await until(lambda: proxy.is_lost)
            async with pool.lease(SITE, wait_s=0.0) as other:
                assert other.url == proxy.url
            proxy.report(403)
        (view,) = await pool.proxies(SITE)
        assert view.state is ProxyState.READY, "a report after the deadline changes nothing"

    run(scenario)


def test_a_lease_is_renewed_up_to_a_maximum_time() -> None:
    async def scenario(pool: Pool, clock: ManualClock) -> None:
        async with pool.lease(SITE, lease_s=0.3, max_hold_s=0.0) as proxy:
            clock.now += 1.0
            async with pool.lease(SITE, wait_s=0.0):
                pass
        assert proxy.is_lost

    run(scenario)


def test_the_number_and_values_of_reports_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leasing, "REPORTS_MAX", 3)

    async def scenario(pool: Pool, _: ManualClock) -> None:
        async with pool.lease(SITE) as proxy:
            invalid_times = (-0.1, float("nan"), float("inf"), "1", True)
            times = [{name: each} for name in ("latency_s", "rest_s") for each in invalid_times]
            for wrong in ({"blame": "me"}, {"result": "200"}, {}, *({"blame": "site", **each} for each in times)):
                with pytest.raises(UsageError):
                    proxy.report(**wrong)
            for _ in range(3):
                proxy.report(200)
            with pytest.raises(UsageError, match="more than 3 reports on one lease: take another lease"):
                proxy.report(200)
        (view,) = await pool.proxies(SITE)
        assert view.uses == 3

    run(scenario)


@pytest.mark.parametrize(
    ("target", "options"),
    [
        ("", {}),
        ("x" * 256, {}),
        (7, {}),
        (SITE, {"session": 7}),
        (SITE, {"tags": {"country": 49}}),
        (SITE, {"tags": {"": ""}}),
    ],
)
def test_targets_sessions_and_tags_are_validated(target: str, options: dict[str, object]) -> None:
    async def scenario(pool: Pool, _: ManualClock) -> None:
        with pytest.raises(UsageError, match="write a string of 1 to 255 characters"):
            async with pool.lease(target, **options):  # type: ignore[arg-type]
                pass
        for lease_s in (0.0, float("nan"), 1e6):
            with pytest.raises(UsageError, match=r"write 0\.1 to 86,400 seconds"):
                async with pool.lease(SITE, lease_s=lease_s):
                    pass

    run(scenario)


def test_policies_come_from_an_argument_or_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lycosa.toml").write_text("[proxies.default]\nconcurrency = 2\n")

    async def lease_twice(**options: object) -> None:
        async with open_pool("memory:", **options) as pool:  # type: ignore[arg-type]
            await pool.add("10.0.0.1:8080")
            async with pool.lease(SITE), pool.lease(SITE, wait_s=0.0):
                pass

    asyncio.run(lease_twice())
    with pytest.raises(NoProxy):
        asyncio.run(lease_twice(policies={"default": {"concurrency": 1}}))
    with pytest.raises(BadSetting, match=r"proxies: there is no 'defaults': did you mean default\?"):
        asyncio.run(lease_twice(policies={"defaults": {}}))
