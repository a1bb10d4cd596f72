"""The contract of the `KeyStore` port (C6): flushed values survive any crash, all others are lost."""

from __future__ import annotations

import asyncio
import random
import resource
import signal
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from lycosa.core.errors import StorageError, StorageFull
from lycosa.storage.keystore.sqlite import SqliteKeyStore
from lycosa.storage.ports import KeyStore
from tests.conftest import ROOT
from tests.storage.memory_keystore import MemoryKeyStore

Open = Callable[[], KeyStore]


@pytest.fixture(params=["memory", "sqlite", "sqlite --sync"])
def open_store(request, tmp_path) -> Open:
    """Return a function that opens the same store each time."""
    if request.param == "memory":
        store = MemoryKeyStore()
        return lambda: store
    return lambda: SqliteKeyStore(tmp_path / "records.sqlite", sync="sync" in request.param)


def test_a_put_is_readable_at_once_and_stored_by_a_flush(open_store: Open):
    async def scenario():
        store = open_store()
        assert store.get("cookies", "a") is None
        store.put("cookies", "a", b"1")
        assert store.get("cookies", "a") == b"1"
        assert store.get("media", "a") is None
        await store.flush()
        assert store.get("cookies", "a") == b"1"
        await store.close()
        store = open_store()
        assert (store.get("cookies", "a"), list(store.items("cookies"))) == (b"1", [("a", b"1")])
        await store.close()

    asyncio.run(scenario())


def test_putting_none_deletes_the_key(open_store: Open):
    async def scenario():
        store = open_store()
        store.put("t", "kept", b"")
        store.put("t", "gone", b"x")
        await store.flush()
        store.put("t", "gone", None)
        store.put("t", "never there", None)
        assert (store.get("t", "gone"), list(store.items("t"))) == (None, [("kept", b"")])
        await store.flush()
        await store.close()
        store = open_store()
        assert list(store.items("t")) == [("kept", b"")]
        await store.close()

    asyncio.run(scenario())


def test_items_are_a_snapshot_sorted_by_key(open_store: Open):
    async def scenario():
        store = open_store()
        for key in ("b", "ä", "", "a\0b", "\udc80", "\U0001f600", "A", "\uffff"):
            store.put("t", key, key.encode("utf-8", "surrogatepass"))
        await store.flush()
        store.put("t", "c", b"c")
        items = store.items("t")
        store.put("t", "d", b"too late")
        found = list(items)
        assert [key for key, _ in found] == sorted(["b", "ä", "", "a\0b", "\udc80", "\U0001f600", "A", "\uffff", "c"])
        assert all(key.encode("utf-8", "surrogatepass") == value for key, value in found)
        await store.close()

    asyncio.run(scenario())


def test_random_operations_equal_those_on_a_dict(open_store: Open):
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    rng = random.Random(seed)

    async def scenario():
        store, model = open_store(), {}
        for _ in range(400):
            table, key = rng.choice("xy"), str(rng.randrange(12))
            action = rng.random()
            if action < 0.5:
                value = rng.choice([None, rng.randbytes(rng.randrange(20))])
                store.put(table, key, value)
                model[table, key] = value
            elif action < 0.6:
                await store.flush()
            elif action < 0.65:
                await store.flush()
                await store.close()
                store = open_store()
            assert store.get(table, key) == model.get((table, key))
            expected = sorted((k, v) for (t, k), v in model.items() if t == table and v is not None)
            assert list(store.items(table)) == expected
        await store.close()

    asyncio.run(scenario())


# ------------------------------------------------------------------------------------------------------------ the file


def test_closing_without_a_flush_drops_the_changes(tmp_path: Path):
    async def scenario():
        store = SqliteKeyStore(tmp_path / "records.sqlite")
        store.put("t", "a", b"1")
        await store.flush()
        store.put("t", "a", b"2")
        await store.close()
        store = SqliteKeyStore(tmp_path / "records.sqlite")
        assert store.get("t", "a") == b"1"
        await store.close()

    asyncio.run(scenario())


def test_a_store_without_changes_creates_no_file(tmp_path: Path):
    async def scenario():
        store = SqliteKeyStore(tmp_path / "state" / "records.sqlite")
        assert (store.get("t", "a"), list(store.items("t"))) == (None, [])
        await store.flush()
        await store.close()

    asyncio.run(scenario())
    assert list(tmp_path.iterdir()) == []


def test_a_flush_without_changes_writes_nothing(tmp_path: Path):
    async def scenario():
        store = SqliteKeyStore(tmp_path / "records.sqlite")
        store.put("t", "a", b"1")
        await store.flush()
        changes = store._database.total_changes
        await store.flush()
        assert store._database.total_changes == changes
        await store.close()

    asyncio.run(scenario())


def test_sync_makes_sqlite_wait_for_the_disk(tmp_path: Path):
    async def synchronous_mode(sync: bool) -> int:
        store = SqliteKeyStore(tmp_path / f"{sync}.sqlite", sync=sync)
        store.put("t", "a", b"1")
        await store.flush()
        found = store._database.execute("PRAGMA synchronous").fetchone()[0]
        await store.close()
        return found

    assert (asyncio.run(synchronous_mode(sync=True)), asyncio.run(synchronous_mode(sync=False))) == (2, 1)


def damage(path: Path) -> None:
    asyncio.run(fill(path))
    data = bytearray(path.read_bytes())
    data[100:] = b"\xff" * (len(data) - 100)
    path.write_bytes(data)


async def fill(path: Path) -> None:
    store = SqliteKeyStore(path)
    for number in range(1000):
        store.put("t", str(number), b"v" * 100)
    await store.flush()
    await store.close()


def create_foreign(path: Path) -> None:
    database = sqlite3.connect(path)
    database.execute("CREATE TABLE theirs (a)")
    database.close()


@pytest.mark.parametrize(
    "spoil",
    [lambda path: path.write_bytes(b"hello " * 1000), damage, create_foreign, Path.mkdir],
    ids=["text", "damaged", "foreign", "folder"],
)
def test_a_foreign_or_damaged_file_is_reported_in_one_line_and_not_changed(
    tmp_path: Path, spoil: Callable[[Path], object]
):
    path = tmp_path / "records.sqlite"
    spoil(path)
    content = path.read_bytes() if path.is_file() else b""
    for use in (lambda store: store.get("t", "1"), lambda store: list(store.items("t")), put_and_flush):
        store = SqliteKeyStore(path)
        with pytest.raises(StorageError) as caught:
            use(store)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)
        asyncio.run(store.close())
    assert (path.read_bytes() if path.is_file() else b"") == content


def put_and_flush(store: KeyStore) -> None:
    store.put("t", "1", b"1")
    asyncio.run(store.flush())


def test_changes_that_could_not_be_written_are_written_by_the_next_flush(tmp_path: Path):
    """The limit on the file size acts like a full disk."""
    path = tmp_path / "records.sqlite"

    async def scenario():
        store = SqliteKeyStore(path)
        store.put("t", "first", b"1")
        await store.flush()
        store.put("t", "large", b"x" * 3_000_000)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, hard))
        try:
            with pytest.raises((StorageError, StorageFull)):
                await store.flush()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, old)
        assert store.get("t", "first") == b"1"
        await store.flush()
        await store.close()
        store = SqliteKeyStore(path)
        assert (store.get("t", "first"), len(store.get("t", "large"))) == (b"1", 3_000_000)
        await store.close()

    asyncio.run(scenario())


WRITER = """
    import asyncio, sys
    from pathlib import Path
    from lycosa.storage.keystore.sqlite import SqliteKeyStore

    async def main():
        store = SqliteKeyStore(Path(sys.argv[1]))
        for number in range(1_000_000):
            for key in range(5):
                store.put("t", str(key), b"%d" % number)
            store.put("log", f"{number:09}", b"v" * 1000)
            await store.flush()
            store.put("t", "0", b"not flushed")
            print(number, flush=True)

    asyncio.run(main())
"""


def test_after_a_kill_every_flush_is_complete(tmp_path: Path):
    path = tmp_path / "records.sqlite"
    for _ in range(3):
        command = [sys.executable, "-c", textwrap.dedent(WRITER), path]
        with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
            flushed = [int(writer.stdout.readline()) for _ in range(200)][-1]
            writer.kill()
            flushed = max([flushed, *map(int, writer.stdout.read().splitlines())])

        async def read_values() -> set[bytes]:
            store = SqliteKeyStore(path)
            values = {value for _, value in store.items("t")}
            await store.close()
            return values

        values = asyncio.run(read_values())
        assert len(values) == 1
        assert int(values.pop()) in {flushed, flushed + 1}
