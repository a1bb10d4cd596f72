"""Pools opened by their address, with the policies of the project."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lycosa.app.proxies.pools import open_for_leasing, open_pool, project_policies
from lycosa.core.errors import BadSetting, NoProxy, UsageError
from lycosa.proxies.core.proxy import Proxy

PROXIES = [Proxy("http", f"10.0.0.{number}", 8080) for number in range(1, 4)]


def test_pools_use_the_policies_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "lycosa.toml").write_text('[proxies.targets."a.example"]\nconcurrency = 2\n')

    async def main() -> None:
        pool = await open_pool("memory:", project_policies(tmp_path))
        try:
            await pool.add(PROXIES[:1])
            assert len(await pool.acquire("a.example") + await pool.acquire("a.example")) == 2
            await pool.acquire("b.example")
            with pytest.raises(NoProxy):
                await pool.acquire("b.example")
        finally:
            await pool.close()

    asyncio.run(main())


def test_errors_in_a_project_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "lycosa.toml").write_text("[proxies.default]\nlease = 2\n")
    with pytest.raises(BadSetting, match=r"^lycosa\.toml: proxies\.default: there is no 'lease'"):
        project_policies(tmp_path)


@pytest.mark.redis
def test_pools_on_a_server_differ_by_name(redis) -> None:
    async def main() -> None:
        first, same, other = [
            await open_pool(f"{redis.url}?pool={name}", create=True) for name in ("by-name", "by-name", "other")
        ]
        try:
            assert await first.add(PROXIES) == 3
            assert len(await same.proxies()) == 3
            assert await other.proxies() == []
        finally:
            for pool in (first, same, other):
                await pool.close()

    asyncio.run(main())


@pytest.mark.redis
def test_a_missing_pool_on_a_server_is_an_error_or_created_on_request(redis) -> None:
    address = f"{redis.url}?pool=mistyped"

    async def main() -> None:
        for _ in range(2):
            with pytest.raises(
                UsageError, match=r"^there is no pool at redis://\S+\?pool=mistyped: lycosa proxies add "
            ):
                await open_pool(address)
        await (await open_pool(address, create=True)).close()
        await (await open_pool(address)).close()
        with pytest.raises(UsageError, match=r"pool=mistyped has no proxies, and the project has no \[\[proxies"):
            await open_for_leasing(address, None, Path("/"))

    asyncio.run(main())


def test_a_missing_pool_in_a_folder_is_an_error_or_created_on_request(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    async def main() -> None:
        for name in ("empty", "nosuch"):
            hint = ", nor a file of this name" if name == "nosuch" else ""
            with pytest.raises(
                UsageError, match=f"there is no pool in .*{name}{hint}: lycosa proxies add FILE --pool .*{name}"
            ):
                await open_pool(tmp_path / name)

    asyncio.run(main())
    assert list(tmp_path.rglob("*")) == [tmp_path / "empty"]

    async def create() -> None:
        await (await open_pool(tmp_path / "nosuch", create=True)).close()
        await (await open_pool(tmp_path / "nosuch")).close()

    asyncio.run(create())


def test_an_empty_pool_is_an_error_unless_the_project_has_sources(tmp_path: Path) -> None:
    async def main() -> None:
        await (await open_pool(tmp_path / "pool", create=True)).close()
        with pytest.raises(
            UsageError, match=r"has no proxies, and the project has no \[\[proxies\.sources\]\]: lycosa proxies"
        ):
            await open_for_leasing(tmp_path / "pool", None, tmp_path)
        (tmp_path / "lycosa.toml").write_text('[[proxies.sources]]\nname = "a"\nkind = "file"\npath = "p"\n')
        await (await open_for_leasing(tmp_path / "pool", None, tmp_path)).close()
        (tmp_path / "lycosa.toml").unlink()
        pool = await open_pool(tmp_path / "pool")
        await pool.add(PROXIES)
        await pool.close()
        await (await open_for_leasing(tmp_path / "pool", None, tmp_path)).close()

    asyncio.run(main())


def test_an_invalid_address_is_an_error() -> None:
    with pytest.raises(UsageError, match="write memory:, a folder, or redis://"):
        asyncio.run(open_pool("http://h/"))
