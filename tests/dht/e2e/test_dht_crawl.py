"""`lycosa dht crawl` in a private DHT of libtorrent sessions: every torrent is stored, and none twice.

`make prove` runs it with the limits against floods that libtorrent has by default, 500 torrents and 100 kills.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from urllib.request import urlopen

import pytest

from lycosa.core.errors import LycosaError
from lycosa.dht.crawler.core.torrent_records import to_torrent_record
from lycosa.storage.core.torrent_record import TorrentRecord
from lycosa.storage.records.sqlite import SqliteRecordStore
from tests.cli.command import Running, assert_one_line, lycosa, start_command, without_waits
from tests.conftest import PROVE, need
from tests.dht.e2e.nodes import ON_LOOPBACK
from tests.servers.bittorrent import LIBTORRENT, find_libtorrent
from tests.servers.torrent_swarm import TorrentSwarm, torrent_swarm

SESSIONS, TORRENTS = (30, 500) if PROVE else (12, 36)
KILLS, LIFE_MAX_S = (100, 4.0) if PROVE else (10, 0.8)
CRAWL_MAX_S = 1800.0  # after a second failure, an infohash waits for 15 minutes
ADDRESS = "127.0.0.77"
POLL_S = 0.05
ANSWER_MAX_S = 60.0


@pytest.fixture(scope="module")
def swarm() -> Iterator[TorrentSwarm]:
    need(LIBTORRENT, find_libtorrent())
    with torrent_swarm(sessions=SESSIONS, torrents=TORRENTS, strict=PROVE) as swarm:
        yield swarm


def crawl(swarm: TorrentSwarm, folder: Path, *options: str) -> AbstractContextManager[Running]:
    join = ("--bind", f"{ADDRESS}:0", "--bootstrap", swarm.bootstrap, "--profile", "server", *ON_LOOPBACK)
    return start_command("dht", "crawl", "--state", "state", *join, *options, cwd=folder)


def stored(folder: Path) -> list[TorrentRecord]:
    """Return the stored torrents, without those of a transaction that is running."""
    path = folder / "state" / "torrents.sqlite"

    async def read() -> list[TorrentRecord]:
        store = SqliteRecordStore(path)
        await store.open()
        try:
            return [row.record for row in await store.torrents(0, TORRENTS + 1)]
        finally:
            await store.close()

    try:
        return asyncio.run(read()) if path.exists() and path.stat().st_size else []
    except LycosaError:  # the tables are being made
        return []


def expected(swarm: TorrentSwarm) -> list[tuple[object, ...]]:
    return sorted(map(essence, (to_torrent_record(each.info, 0) for each in swarm.torrents)))


def essence(record: TorrentRecord) -> tuple[object, ...]:
    """Return values that identify a torrent.

    The crawl computes the infohashes from the received metadata, so equal infohashes prove equal metadata.
    """
    return record.infohash_v1 or b"", record.infohash_v2 or b"", record.name, record.size_bytes, len(record.files)


def until_it_says(process: Running, text: str) -> None:
    assert process.until(lambda: text in process.stderr), process.stderr


def until_all_are_stored(process: Running, folder: Path) -> None:
    deadline = time.monotonic() + CRAWL_MAX_S
    while len(stored(folder)) < TORRENTS:
        assert process.process.poll() is None, process.stderr
        assert time.monotonic() < deadline, f"{len(stored(folder))} of {TORRENTS} torrents: {process.stderr}"
        time.sleep(POLL_S)


def end(process: Running) -> Counter[str]:
    """End the crawl, and return the counts of its queue."""
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 0, process.stderr
    found = re.search(r"queue: ([\d,]+) done, ([\d,]+) queued, ([\d,]+) to try later", process.stderr)
    assert found is not None, process.stderr
    return Counter({name: int(found[n]) for n, name in enumerate(("done", "queued", "later"), 1)})


def silent_nodes(swarm: TorrentSwarm) -> list[tuple[str, int]]:
    """Return the nodes that do not answer a ping from the address of the crawl: a banned host gets no answer."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((ADDRESS, 0))
        silent = dict.fromkeys(swarm.nodes)
        deadline = time.monotonic() + ANSWER_MAX_S
        for node in swarm.nodes:
            sock.sendto(b"d1:ad2:id20:abcdefghij0123456789e1:q4:ping1:t2:aa1:y1:qe", node)
        while silent and (left_s := deadline - time.monotonic()) > 0:
            sock.settimeout(left_s)
            try:
                silent.pop(sock.recvfrom(4096)[1], None)
            except TimeoutError:
                break
    return list(silent)


def assert_complete(swarm: TorrentSwarm, folder: Path) -> None:
    assert sorted(map(essence, stored(folder))) == expected(swarm)
    assert swarm.counts() == (0, 0), "contents were sent"
    assert silent_nodes(swarm) == []


@pytest.mark.skipif(not PROVE, reason="make prove")
def test_every_torrent_is_stored_once(swarm: TorrentSwarm, tmp_path: Path) -> None:
    with crawl(swarm, tmp_path) as process:
        until_all_are_stored(process, tmp_path)
        counts = end(process)
    assert_complete(swarm, tmp_path)
    infohashes = sum(len(each.keys) for each in stored(tmp_path))
    assert TORRENTS <= counts.total() <= infohashes


def test_a_crawl_that_is_killed_again_and_again_loses_none_and_stores_none_twice(
    swarm: TorrentSwarm, tmp_path: Path
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(KILLS):
        with crawl(swarm, tmp_path) as process:
            until_it_says(process, "joining")
            assert process.kill_at(time.monotonic() + chance.uniform(0.0, LIFE_MAX_S)), process.stderr
    with crawl(swarm, tmp_path) as process:
        until_it_says(process, "joined: ")
        until_all_are_stored(process, tmp_path)
        end(process)
    assert_complete(swarm, tmp_path)


def test_a_running_crawl_has_a_page_and_metrics_and_explains_a_missing_torrent(
    swarm: TorrentSwarm, tmp_path: Path
) -> None:
    with crawl(swarm, tmp_path, "--page", "0", "--metrics", "0", "--json") as process:
        assert process.until(lambda: "page: " in process.stderr), process.stderr
        urls = dict(re.findall(r"^(page|metrics): (\S+)$", process.stderr, re.MULTILINE))
        assert process.until(lambda: stored(tmp_path)), process.stderr
        assert "DHT crawl" in read(urls["page"])
        for url in (urls["metrics"], f"{urls['page']}metrics"):
            assert "lycosa_dht_crawl_infohashes_total" in read(url)
        [infohash, *_] = stored(tmp_path)[0].keys
        explained = lycosa("dht", "explain", infohash.hex(), "--state", "state", cwd=tmp_path)
        assert (explained.returncode, without_waits(explained.stderr)) == (0, "")
        assert "stored at " in explained.stdout
        unknown = lycosa("dht", "explain", "ab" * 20, "--state", "state", cwd=tmp_path)
        assert (unknown.returncode, without_waits(unknown.stderr)) == (1, "")
        assert "never queued" in unknown.stdout
        stats = json.loads(lycosa("dht", "stats", "--state", "state", "--json", cwd=tmp_path).stdout)
        assert stats["running"] == f"process {process.process.pid}"
        assert stats["torrents"] >= 1
        end(process)
    summary = json.loads(process.stdout)
    assert summary["stored"] == len(stored(tmp_path))


def test_a_crawl_ends_after_a_number_of_torrents(swarm: TorrentSwarm, tmp_path: Path) -> None:
    with crawl(swarm, tmp_path, "--max-torrents", "3") as process:
        assert process.end() == 0, process.stderr
    assert 3 <= len(stored(tmp_path)) <= TORRENTS


def read(url: str) -> str:
    with urlopen(url, timeout=ANSWER_MAX_S) as response:
        return response.read().decode()


def test_a_crawl_without_a_folder_is_a_mistake(tmp_path: Path) -> None:
    done = lycosa("dht", "crawl", "--bootstrap", "127.0.0.1:1", cwd=tmp_path)
    assert assert_one_line(done.stderr) == "dht crawl needs a folder for the torrents: --state DIR"
    assert done.returncode == 2
