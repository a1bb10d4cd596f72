"""`lycosa index`, `lycosa site` and a store, as processes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.cli.command import assert_one_line, lycosa
from tests.conftest import need
from tests.dht.e2e.nodes import ON_LOOPBACK
from tests.search.e2e.torrent_processes import DEADLINE_S, change, running, serving, status
from tests.search.site.torrents.sample_torrents import HASHES, SAMPLES
from tests.servers.bittorrent import LIBTORRENT, find_libtorrent
from tests.servers.torrent_swarm import torrent_swarm


@pytest.fixture
def folder(tmp_path) -> Iterator[Path]:
    change(tmp_path, *SAMPLES[:2])
    return tmp_path


def found(site: str, query: str) -> list[str]:
    return [each["infohash"] for each in json.loads(status(f"{site}api/search?q={query}")[1])["torrents"]]


def wait_for(site: str, query: str, expected: list[str], within_s: float = DEADLINE_S) -> None:
    end = time.monotonic() + within_s
    while found(site, query) != expected:
        assert time.monotonic() < end, f"{query} finds {found(site, query)}"
        time.sleep(0.05)


def test_a_denied_torrent_is_gone_at_once_although_the_indexer_is_killed(folder):
    with running(folder, "index", "--follow") as indexer:
        assert indexer.until(lambda: "2 torrents indexed" in indexer.stderr)
        with serving(folder) as (_, address):
            assert sorted(found(address, "great+show")) == sorted(HASHES[:2])
            assert indexer.kill()
            change(folder, denied=(SAMPLES[0].infohash_v1,))
            assert status(f"{address}torrent/{HASHES[0]}")[0] == 410
            assert found(address, "great+show") == [HASHES[1]]


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
