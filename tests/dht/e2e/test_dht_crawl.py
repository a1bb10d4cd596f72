"""`lycosa dht crawl` in a private DHT of libtorrent sessions: every torrent is stored, and none twice."""

from __future__ import annotations

import random
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

import pytest

from tests.cli.command import Running, assert_one_line, lycosa, start_command
from tests.conftest import PROVE, need
from tests.dht.e2e.nodes import ON_LOOPBACK
from tests.servers.bittorrent import LIBTORRENT, find_libtorrent
from tests.servers.torrent_swarm import TorrentSwarm, torrent_swarm

SESSIONS, TORRENTS = (30, 200) if PROVE else (8, 24)
KILLS = 10 if PROVE else 2


@pytest.fixture(scope="module")
def swarm() -> Iterator[TorrentSwarm]:
    need(LIBTORRENT, find_libtorrent())
    with torrent_swarm(sessions=SESSIONS, torrents=TORRENTS) as swarm:
        yield swarm


def crawl(swarm: TorrentSwarm, folder: Path) -> AbstractContextManager[Running]:
    join = ("--bind", "127.0.0.77:0", "--bootstrap", swarm.bootstrap, *ON_LOOPBACK)
    return start_command("dht", "crawl", "--state", "state", *join, cwd=folder)


def stored(folder: Path) -> list[str]:
    """Return the stored infohashes, without those of a transaction that is running."""
    path = folder / "state" / "torrents.sqlite"
    if not path.exists():
        return []
    with closing(sqlite3.connect(path)) as database:
        try:
            rows = database.execute("SELECT v1, v2 FROM torrents")
            return [infohash[:20].hex() for row in rows for infohash in row if infohash is not None]
        except sqlite3.OperationalError:  # the tables are not there yet
            return []


def until_all_are_stored(process: Running, swarm: TorrentSwarm, folder: Path) -> None:
    assert process.until(lambda: set(stored(folder)) == {*swarm.infohashes.values()}), process.stderr


def end(process: Running) -> Counter[str]:
    """End the crawl, and return the counts of its queue."""
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 0, process.stderr
    found = re.search(r"queue: ([\d,]+) done, ([\d,]+) queued, ([\d,]+) to try later", process.stderr)
    assert found is not None, process.stderr
    return Counter({name: int(found[n]) for n, name in enumerate(("done", "queued", "later"), 1)})


def test_every_torrent_is_stored_once(swarm: TorrentSwarm, tmp_path: Path) -> None:
    with crawl(swarm, tmp_path) as process:
        until_all_are_stored(process, swarm, tmp_path)
        assert end(process) == Counter(done=TORRENTS)
    assert f"{TORRENTS} torrents stored in" in process.stderr
    assert sorted(stored(tmp_path)) == sorted(swarm.infohashes.values())


def test_a_crawl_that_is_killed_again_and_again_loses_none_and_stores_none_twice(
    swarm: TorrentSwarm, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        more = len(stored(tmp_path)) + chance.randrange(1, max(2, TORRENTS // (KILLS + 1)))
        with crawl(swarm, tmp_path) as process:
            process.until(lambda more=more: len(stored(tmp_path)) >= more)
            assert process.kill()
    with crawl(swarm, tmp_path) as process:
        until_all_are_stored(process, swarm, tmp_path)
        counts = end(process)
    assert counts["later"] + counts["queued"] + counts["done"] == TORRENTS
    assert sorted(stored(tmp_path)) == sorted(swarm.infohashes.values())


def test_a_crawl_without_a_folder_is_a_mistake(tmp_path: Path) -> None:
    done = lycosa("dht", "crawl", "--bootstrap", "127.0.0.1:1", cwd=tmp_path)
    assert assert_one_line(done.stderr) == "dht crawl needs a folder for the torrents: --state DIR"
    assert done.returncode == 2
