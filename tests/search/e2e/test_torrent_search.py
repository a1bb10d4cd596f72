"""`lycosa index`, `lycosa site` and a store, as processes: stored torrents are found, and kill -9 loses nothing."""

from __future__ import annotations

import asyncio
import json
import re
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from lycosa.storage.ports import RecordStore
from lycosa.storage.records.sqlite import SqliteRecordStore
from tests.cli.command import Running, assert_one_line, lycosa, start_command
from tests.conftest import need
from tests.dht.e2e.nodes import ON_LOOPBACK
from tests.search.site.torrents.sample_torrents import HASHES, NOW, SAMPLES
from tests.servers.bittorrent import LIBTORRENT, find_libtorrent
from tests.servers.torrent_swarm import torrent_swarm

DEADLINE_S = 60.0


def change(folder: Path, *records, denied: tuple[bytes, ...] = ()) -> None:
    async def main():
        store: RecordStore = SqliteRecordStore(folder / "state" / "torrents.sqlite")
        await store.open()
        await store.put(records, NOW)
        await store.deny(denied)
        await store.close()

    (folder / "state").mkdir(exist_ok=True)
    asyncio.run(main())


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    change(tmp_path, *SAMPLES[:2])
    return tmp_path


def status(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def found(site: str, query: str) -> list[str]:
    return [each["infohash"] for each in json.loads(status(f"{site}api/search?q={query}")[1])["torrents"]]


def wait_for(site: str, query: str, expected: list[str], within_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + within_s
    while found(site, query) != expected:
        assert time.monotonic() < end, f"{query} finds {found(site, query)}"
        time.sleep(0.05)


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[Running]:
    """Start a command in a separate folder, which also gets its output."""
    home = Path(tempfile.mkdtemp(dir=folder))
    with start_command(*arguments, "--state", folder / "state", cwd=home) as command:
        yield command


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[Running, str]]:
    """Start the site. Yield the process and its address."""
    with running(folder, "site", "--port", "0", *options) as site:
        assert site.until(lambda: b"Search site: " in site.stdout), site.stderr
        yield site, re.search(r"Search site: (http://\S+)", site.stdout.decode())[1]


def test_stored_torrents_are_found_although_indexer_and_site_are_killed(folder):
    with running(folder, "index", "--follow") as indexer:
        assert indexer.until(lambda: "2 torrents indexed" in indexer.stderr)
        with serving(folder) as (site, address):
            assert sorted(found(address, "great+show")) == sorted(HASHES[:2])
            change(folder, SAMPLES[2])
            wait_for(address, "%E8%8B%B1%E9%9B%84", [HASHES[2]])
            assert indexer.kill()
            change(folder, SAMPLES[3], denied=(SAMPLES[0].infohash_v1,))
            assert status(f"{address}torrent/{HASHES[0]}")[0] == 410
            assert found(address, "great+show") == [HASHES[1]]
            with running(folder, "index", "--follow"):
                wait_for(address, "needle", [HASHES[3]])
            assert site.kill()
    with serving(folder) as (_, address):
        assert found(address, "needle") == [HASHES[3]]


def test_the_index_is_rebuilt_while_the_site_runs(folder):
    assert lycosa("index", "--state", "state", "--engine", "fts5", cwd=folder).returncode == 0
    assert "documents  2" in lycosa("index", "stats", "--index", "state/index", cwd=folder).stdout
    with serving(folder, "--processes", "2") as (_, address):
        change(folder, SAMPLES[2])
        rebuilt = lycosa("index", "--state", "state", "--rebuild", cwd=folder)
        assert "torrents indexed" in rebuilt.stderr
        assert found(address, "%E8%8B%B1%E9%9B%84") == [HASHES[2]]


def test_torrents_are_searchable_while_the_crawl_runs(tmp_path):
    need(LIBTORRENT, find_libtorrent())
    with torrent_swarm(sessions=5, torrents=6) as swarm:
        join = ("--bind", "127.0.0.78:0", "--bootstrap", swarm.bootstrap, "--profile", "server", *ON_LOOPBACK)
        with running(tmp_path, "dht", "crawl", "--index", str(tmp_path / "state/index"), *join) as crawl:
            assert crawl.until((tmp_path / "state/index/tantivy/meta.json").exists), crawl.stderr
            with serving(tmp_path) as (_, address):
                name = quote(f'"{swarm.torrents[0].name}"')
                # After a failed try, the crawl waits for a minute.
                wait_for(address, name, [swarm.torrents[0].v1.hex()], within_s=600.0)


def test_the_start_line_names_the_path_of_the_site(folder):
    assert lycosa("index", "--state", "state", cwd=folder).returncode == 0
    with serving(folder, "--base-path", "/some/..t/") as (_, address):
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/some/\.\.t/", address)
        assert status(address)[0] == 200
        assert found(address, "great+show")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            (["site", "--index", "state/index", *option], f"{option[0]} is for a torrent site: give --state or --store")
            for option in (
                ["--processes", "2"],
                ["--base-path", "/x"],
                ["--hide-at-once"],
                ["--keep-requests", "365"],
                ["--admin-over-http"],
                ["--add-admin", "ada"],
            )
        ),
        *(
            (["site", "--state", "state", "--base-path", path], f"--base-path {path}: write a plain path such as")
            for path in ("/../a", "/a/..", "/./a", "/a//b", "/a/?b", "a")
        ),
        (["site", "--state", "state"], "state/index does not exist: `lycosa index`"),
        (["site", "--state", "nowhere"], "nowhere has no torrents: is it the --state of a dht crawl?"),
        (["index", "--state", "nowhere"], "nowhere has no torrents"),
        (["index", "--store", "postgresql://h/d"], "which index? Give --index DIR"),
        (["site", "--state", "state", "--add-admin", "ada"], "a password has 12 to 1,000 characters"),
        *(
            (["site", "--state", "state", "--add-admin", name], "cannot be the name of an administrator: write 1 to 60")
            for name in ("", " eve ", "e" * 61, "a\nb")
        ),
    ],
)
def test_mistakes_are_one_line(folder, arguments, message):
    result = lycosa(*arguments, cwd=folder)
    assert result.returncode == 2
    assert message in assert_one_line(result.stderr)
