"""Lua scripts: how the source is put together, and how it is run on real servers: a single one and a cluster."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("redis")

from lycosa.core.redis_url import RedisAddress, parse_redis_url
from lycosa.infra.redis.clients import asyncio_client, blocking_client
from lycosa.infra.redis.driver import redis_package
from lycosa.infra.redis.scripts import Constant, LuaScript
from tests.servers.redis import RedisCluster, RedisServer

TIMEOUT_S = 10.0


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a package with three Lua files: `common`, `add` and `echo`."""
    name = f"scripts_{os.urandom(4).hex()}"
    folder = tmp_path / name / "lua"
    folder.mkdir(parents=True)
    (tmp_path / name / "__init__.py").touch()
    (folder / "common.lua").write_text("local function add(key, amount) return redis.call('INCRBY', key, amount) end\n")
    (folder / "add.lua").write_text("return add(counter, ARGV[1] * FACTOR)\n")
    (folder / "echo.lua").write_text("#!lua flags=no-writes\nreturn {TEXT, LIST[2], TABLE.second, KEYS[1]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
def add_script(package: str) -> LuaScript:
    """Adds the argument, three times, to the counter that is its key."""
    return LuaScript(package, ["common", "add"], {"FACTOR": 3}, key_names=["counter"])


@pytest.fixture
def key() -> str:
    return os.urandom(8).hex()


@pytest.fixture
def client(redis: RedisServer) -> Iterator[Any]:
    with blocking_client(address_of(redis), TIMEOUT_S) as client:
        yield client


def address_of(server: RedisServer | RedisCluster) -> RedisAddress:
    return parse_redis_url(server.url)


def record_commands(client: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which the name of every later command of the client is appended."""
    names: list[str] = []
    execute = client.execute_command

    def record(*arguments: Any, **options: Any) -> Any:
        names.append(arguments[0])
        return execute(*arguments, **options)

    monkeypatch.setattr(client, "execute_command", record)
    return names


def test_the_source_is_the_key_names_then_the_constants_then_the_files_in_order(add_script: LuaScript) -> None:
    assert add_script.text.decode().splitlines() == [
        "local counter = unpack(KEYS)",
        "local FACTOR = 3",
        "local function add(key, amount) return redis.call('INCRBY', key, amount) end",
        "",
        "return add(counter, ARGV[1] * FACTOR)",
    ]


def test_a_shebang_of_the_last_file_becomes_the_first_line(package: str) -> None:
    lines = LuaScript(package, ["common", "echo"], {"TEXT": "a"}).text.decode().splitlines()
    assert lines[:2] == ["#!lua flags=no-writes", "local TEXT = 'a'"]
    assert sum(line.startswith("#!") for line in lines) == 1


def test_files_named_as_blocks_are_enclosed(package: str) -> None:
    source = LuaScript(package, ["common", "add"], blocks=["common"]).text.decode()
    assert source.startswith("do\nlocal function add(")
    assert "end\n\nend\nreturn add(" in source


def test_constants_reach_lua_unchanged(client: Any, package: str, key: str) -> None:
    text = r"it's a \ backslash: \n"
    constants: dict[str, Constant] = {"TEXT": text, "LIST": ["one", "two's"], "TABLE": {"first": "1", "second": "\\'"}}
    script = LuaScript(package, ["echo"], constants)
    assert script.run(client, [key], []) == [text.encode(), b"two's", b"\\'", key.encode()]


def test_a_script_unknown_to_the_server_is_sent_once_as_source(
    client: Any, add_script: LuaScript, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.script_flush()
    commands = record_commands(client, monkeypatch)
    assert add_script.run(client, [key], [2]) == 6
    assert commands == ["EVALSHA", "EVAL"]
    assert add_script.run(client, [key], [1]) == 9, "each call runs the script once"
    assert commands == ["EVALSHA", "EVAL", "EVALSHA"]


def test_a_script_is_sent_again_after_script_flush(
    client: Any, add_script: LuaScript, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_script.run(client, [key], [1])
    client.script_flush()
    commands = record_commands(client, monkeypatch)
    assert add_script.run(client, [key], [1]) == 6
    assert commands == ["EVALSHA", "EVAL"]


def test_an_asyncio_client_falls_back_to_the_source_too(
    redis: RedisServer, client: Any, add_script: LuaScript, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> tuple[list[int], list[str]]:
        async with asyncio_client(address_of(redis), TIMEOUT_S) as asynchronous:
            commands = record_commands(asynchronous, monkeypatch)
            return [await add_script.run_async(asynchronous, [key], [amount]) for amount in (2, 1)], commands

    client.script_flush()
    assert asyncio.run(run()) == ([6, 9], ["EVALSHA", "EVAL", "EVALSHA"])


def test_the_checksum_is_the_one_of_the_server(client: Any, add_script: LuaScript) -> None:
    assert client.script_load(add_script.text) == add_script.checksum


def test_other_errors_of_a_script_are_raised_without_a_second_run(
    client: Any, add_script: LuaScript, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.set(key, "text")
    add_script.run(client, [key + "2"], [1])
    commands = record_commands(client, monkeypatch)
    with pytest.raises(redis_package().exceptions.ResponseError, match="not an integer"):
        add_script.run(client, [key], [1])
    assert commands == ["EVALSHA"]


def test_a_pipeline_takes_the_command_of_a_known_script(client: Any, add_script: LuaScript, key: str) -> None:
    add_script.run(client, [key], [1])
    with client.pipeline(transaction=False) as pipeline:
        for amount in (1, 2):
            pipeline.execute_command(*add_script.command([key], [amount]))
        assert pipeline.execute() == [6, 12]


def test_a_cluster_runs_the_script_on_the_master_of_its_keys(cluster: RedisCluster, add_script: LuaScript) -> None:
    keys = [os.urandom(8).hex() for _ in range(12)]
    assert len({cluster.owner(key).port for key in keys}) > 1, "keys of several masters"
    with blocking_client(address_of(cluster), TIMEOUT_S) as client:
        assert [add_script.run(client, [key], [1]) for key in keys] == [3] * len(keys)

    async def run() -> list[int]:
        async with asyncio_client(address_of(cluster), TIMEOUT_S) as client:
            return [await add_script.run_async(client, [key], [1]) for key in keys]

    assert asyncio.run(run()) == [6] * len(keys)


def test_a_cluster_gets_the_source_again_after_script_flush(cluster: RedisCluster, add_script: LuaScript) -> None:
    key = os.urandom(8).hex()
    with blocking_client(address_of(cluster), TIMEOUT_S) as client:
        assert add_script.run(client, [key], [1]) == 3
        cluster.owner(key).cli("SCRIPT", "FLUSH")
        assert add_script.run(client, [key], [1]) == 6
