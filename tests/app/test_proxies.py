"""A pool by its address, with what the project says of targets (P1, P3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lycosa.app.proxies import open_pool, project_policies
from lycosa.core.errors import BadSetting, NoProxy, UsageError
from lycosa.core.proxies.proxy import Proxy

PROXIES = [Proxy("http", f"10.0.0.{number}", 8080) for number in range(1, 4)]


def test_the_policies_of_the_project_hold_in_its_pools(tmp_path: Path) -> None:
    (tmp_path / "lycosa.toml").write_text('[proxies.targets."a.example"]\nconcurrency = 2\n')

    async def story() -> None:
        pool = await open_pool("memory:", project_policies(tmp_path))
        try:
            await pool.add(PROXIES[:1])
            assert len(await pool.acquire("a.example") + await pool.acquire("a.example")) == 2
            await pool.acquire("b.example")
            with pytest.raises(NoProxy):
                await pool.acquire("b.example")
        finally:
            await pool.close()

    asyncio.run(story())


def test_mistakes_of_a_project_have_their_place(tmp_path: Path) -> None:
    (tmp_path / "lycosa.toml").write_text("[proxies.default]\nlease = 2\n")
    with pytest.raises(BadSetting, match=r"^lycosa\.toml: proxies\.default: there is no 'lease'"):
        project_policies(tmp_path)


@pytest.mark.redis
def test_pools_on_a_server_are_told_apart_by_their_names(redis) -> None:
    async def story() -> None:
        first, same, other = [await open_pool(f"{redis.url}?pool={name}") for name in ("by-name", "by-name", "else")]
        try:
            assert await first.add(PROXIES) == 3
            assert len(await same.proxies()) == 3
            assert await other.proxies() == []
        finally:
            for pool in (first, same, other):
                await pool.close()

    asyncio.run(story())


def test_what_is_no_address() -> None:
    with pytest.raises(UsageError, match="write memory:, a folder, or redis://"):
        asyncio.run(open_pool("http://h/"))
