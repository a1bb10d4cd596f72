"""A database server whose disk is full: the crawl waits, says why, loses nothing, and goes on."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.records.outages import OutageWait
from lycosa.storage.records.sql import open_sql_records
from tests.conftest import need
from tests.servers.mariadb import MARIADB, MariadbServer, find_mariadb, mariadb_process
from tests.servers.postgresql import POSTGRESQL, PostgresqlServer, find_postgresql, postgresql_process
from tests.storage.torrents import torrent

NOW = 1_790_000_000.0
ROOMY, LEFT = 600 << 20, 64 << 10
"""Bytes of the disk while it has space for everything, and bytes left free on it before it becomes full."""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file system in memory, which any user may enter, for the folder of the server."""
    path = Path(tempfile.mkdtemp(prefix="lycosa-disk-"))
    command = ["mount", "-t", "tmpfs", "-o", f"size={ROOMY}", "lycosa-test", path]
    mounted = shutil.which("mount") and subprocess.run(command, capture_output=True, check=False).returncode == 0
    need("the right to mount a tmpfs (root)", bool(mounted))
    monkeypatch.setattr("tempfile.tempdir", str(path))
    yield path
    subprocess.run(["umount", "-l", path], check=True)
    path.rmdir()


def resize(disk: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", disk], check=True)


def used_bytes(disk: Path) -> int:
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def large(first: int, count: int) -> list[TorrentRecord]:
    chance = random.Random(first)
    return [replace(torrent(n, 1), comment=chance.randbytes(20_000).hex()) for n in range(first, first + count)]


@pytest.mark.prove
@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_full_server_is_waited_for(disk: Path, kind: str) -> None:
    need(*((POSTGRESQL, find_postgresql() is not None) if kind == "postgresql" else (MARIADB, bool(find_mariadb()))))
    records = large(0, 400)
    said: list[str] = []

    async def scenario(server: PostgresqlServer | MariadbServer) -> None:
        heard = asyncio.Queue[str]()
        store = open_sql_records(server.url)
        await store.open()
        await store.put(records[:20], NOW)
        store.outage_wait = OutageWait(heard.put_nowait)
        resize(disk, used_bytes(disk) + LEFT)
        storing = asyncio.create_task(store.put(records[20:], NOW))
        said.append(await heard.get())
        assert not storing.done()
        resize(disk, ROOMY)
        if kind == "mariadb":  # it ends itself when its disk is full
            server.kill()
            server.start()
        result = await storing
        assert result.new + result.known == 380
        said.append(await heard.get())
        assert [row.record for row in await store.torrents(0, 1000)] == records
        await store.close()

    with postgresql_process() if kind == "postgresql" else mariadb_process() as server:
        asyncio.run(scenario(server))
    assert "the server has no space left" in said[0] or kind == "mariadb"  # MariaDB may lose the connection first
    assert "can be stored again" in said[1]
