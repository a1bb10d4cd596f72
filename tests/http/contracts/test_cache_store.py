"""The contract of the `HttpCacheStore` port (C10): responses are returned intact or not at all, within bounds."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from lycosa.core.errors import StorageError
from lycosa.http.cache.sqlite import SqliteCache
from lycosa.http.core.cache_rules import StoredResponse
from lycosa.http.ports import HttpCacheStore
from tests.conftest import ROOT
from tests.http.memory_cache import MemoryCache

HTML = [("content-type", "text/html; charset=utf-8")]
Open = Callable[..., HttpCacheStore]


def page(body: bytes = b"<p>hello", headers: list[tuple[str, str]] = HTML) -> StoredResponse:
    return StoredResponse("http://a.example/", 200, headers, body, 1.5, 2.5, {"accept": "x"}, "127.0.0.1", "1.1")


@pytest.fixture(params=["memory", "sqlite"])
def open_cache(request, tmp_path) -> Open:
    if request.param == "memory":
        return MemoryCache
    return lambda bytes_max=1 << 30: SqliteCache(tmp_path / "cache", bytes_max)


@pytest.mark.parametrize(
    "stored",
    [
        page(),
        page(b""),
        page(b"\x00\xff" * 5000, [("content-type", "image/png")]),
        page(b"<p>" * 100_000),
        page(headers=[]),
        page(headers=[("a", "1"), ("a", "2"), ("b", "\xe4\xff")]),
    ],
    ids=["page", "empty", "binary", "large", "no fields", "repeated fields"],
)
def test_response_is_returned_as_it_was_stored(open_cache: Open, stored: StoredResponse):
    async def scenario():
        cache = open_cache()
        assert await cache.get("k") is None
        await cache.put("k", stored)
        found = await cache.get("k")
        assert found == stored
        assert [tuple(field) for field in found.headers] == stored.headers
        assert await cache.get("other") is None
        await cache.put("k", page(b"new"))
        assert (await cache.get("k")).body == b"new"
        await cache.delete("k")
        await cache.delete("k")
        assert await cache.get("k") is None
        await cache.close()
        await cache.close()

    asyncio.run(scenario())


def test_least_recently_used_responses_are_evicted_first(open_cache: Open):
    async def scenario():
        cache = open_cache(bytes_max=100_000)
        noise = [("content-type", "image/png")]
        for number in range(300):
            await cache.put(str(number), page(bytes([number % 256]) * 1000, noise))
            assert await cache.get("0") is not None, number
        remaining = [number for number in range(300) if await cache.get(str(number)) is not None]
        assert 80 <= len(remaining) <= 100
        assert remaining == [0, *range(301 - len(remaining), 300)]
        await cache.close()

    asyncio.run(scenario())


def test_response_that_is_too_large_evicts_nothing_but_its_previous_version(open_cache: Open):
    async def scenario():
        cache = open_cache(bytes_max=10_000)
        await cache.put("small", page())
        await cache.put("large", page())
        await cache.put("large", page(b"\x01" * 10_001, []))
        assert (await cache.get("large"), await cache.get("small")) == (None, page())
        await cache.close()

    asyncio.run(scenario())


def test_concurrent_calls(open_cache: Open):
    async def scenario():
        cache = open_cache()
        async with asyncio.TaskGroup() as tasks:
            for number in range(200):
                tasks.create_task(cache.put(str(number % 50), page(b"%d" % (number % 50))))
        found = await asyncio.gather(*(cache.get(str(number)) for number in range(50)))
        assert [each.body for each in found] == [b"%d" % number for number in range(50)]
        await cache.close()

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------------------------ the file


def test_responses_and_order_of_use_survive_a_restart(tmp_path: Path):
    async def scenario():
        cache = SqliteCache(tmp_path, 100_000)
        for number in range(80):
            await cache.put(str(number), page(b"\x01" * 1000, []))
        await cache.get("0")
        await cache.close()
        cache = SqliteCache(tmp_path, 100_000)
        for number in range(80, 120):
            await cache.put(str(number), page(b"\x01" * 1000, []))
        assert await cache.get("0") is not None
        assert await cache.get("1") is None
        await cache.close()

    asyncio.run(scenario())


def test_file_size_is_bounded(tmp_path: Path):
    async def scenario():
        cache = SqliteCache(tmp_path, 1_000_000)
        for number in range(3000):
            await cache.put(str(number), page(b"\x01" * 5000, []))
        await cache.close()

    asyncio.run(scenario())
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 3_000_000


def test_text_is_compressed(tmp_path: Path):
    async def scenario():
        cache = SqliteCache(tmp_path)
        for number in range(100):
            await cache.put(str(number), page(b"<p>hello</p>" * 5000))
        await cache.close()

    asyncio.run(scenario())
    assert (tmp_path / "httpcache.sqlite").stat().st_size < 600_000


def test_two_processes_share_a_cache(tmp_path: Path):
    async def scenario():
        caches = [SqliteCache(tmp_path) for _ in range(2)]
        await asyncio.gather(*(cache.put(f"{n}{m}", page()) for n, cache in enumerate(caches) for m in range(50)))
        assert None not in [await cache.get(f"{n}{m}") for cache in caches for n in range(2) for m in range(50)]
        for cache in caches:
            await cache.close()

    asyncio.run(scenario())


def test_damaged_row_is_a_miss(tmp_path: Path):
    async def scenario():
        cache = SqliteCache(tmp_path)
        for key in "abcde":
            await cache.put(key, page())
        for key, column, value in (
            ("a", "head", b"nonsense"),
            ("b", "body", b"nonsense"),
            ("c", "length", 7),
            ("d", "length", 1 << 40),
            ("e", "body", "text"),
        ):
            cache._database.execute(f"UPDATE responses SET {column} = ? WHERE key = ?", (value, key))
        assert [await cache.get(key) for key in "abcde"] == [None] * 5
        await cache.put("a", page())
        assert await cache.get("a") == page()
        await cache.close()

    asyncio.run(scenario())


def foreign(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (a)")
    database.close()


@pytest.mark.parametrize(
    "spoil", [lambda path: path.write_bytes(b"hello " * 1000), foreign, Path.mkdir], ids=["text", "foreign", "folder"]
)
def test_foreign_file_is_refused_in_one_line(tmp_path: Path, spoil: Callable[[Path], object]):
    path = tmp_path / "httpcache.sqlite"
    spoil(path)

    async def scenario():
        cache = SqliteCache(tmp_path)
        for use in (cache.get("k"), cache.put("k", page()), cache.delete("k")):
            with pytest.raises(StorageError) as caught:
                await use
            assert str(caught.value).startswith(str(path))
            assert "\n" not in str(caught.value)
        await cache.close()

    asyncio.run(scenario())


WRITER = """
    import asyncio, sys
    from pathlib import Path
    from lycosa.http.cache.sqlite import SqliteCache
    from lycosa.http.core.cache_rules import StoredResponse

    async def main():
        cache = SqliteCache(Path(sys.argv[1]), 2_000_000)
        for number in range(1_000_000):
            body = b"%d " % number * 2000
            await cache.put(str(number % 500), StoredResponse("http://a/", 200, [], body, number, number))
            print(number, flush=True)

    asyncio.run(main())
"""


def test_stored_responses_survive_kill_9(tmp_path: Path):
    for _ in range(3):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), tmp_path]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            stored = [int(writer.stdout.readline()) for _ in range(300)][-1]
            writer.kill()
            stored = max([stored, *map(int, writer.stdout.read().splitlines())])

        async def read_all(last: int) -> None:
            cache = SqliteCache(tmp_path, 2_000_000)
            stored = await cache.get(str(last % 500))
            assert stored.body.startswith((b"%d " % last, b"%d " % (last + 500)))
            responses = [await cache.get(str(number)) for number in range(500)]
            assert all(each is None or each.body == b"%d " % each.received_at * 2000 for each in responses)
            await cache.close()

        asyncio.run(read_all(stored))


def test_rows_of_a_newer_version_with_more_fields_are_read():
    fields = msgspec.msgpack.decode(msgspec.msgpack.encode(page()))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode([*fields, "new"]), type=StoredResponse) == page()
