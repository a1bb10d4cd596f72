"""Mistakes in the options of `lycosa dht crawl` are reported in one line, before anything is opened."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path
from socket import SOCK_DGRAM, create_server, socket
from types import SimpleNamespace

import pytest

from lycosa.app import torrent_search
from lycosa.app.dht_state import RecordsLocation, check_store, open_records
from lycosa.cli.dht.crawl import _follow, indexing
from lycosa.core.errors import IndexTaken, UsageError
from lycosa.search import torrent_indexer
from tests.cli.command import assert_one_line, lycosa
from tests.servers.ports import closed_port
from tests.storage.torrents import torrent

JOIN = ("--bind", "127.0.0.1:0", "--bootstrap", "127.0.0.1:1", "--allow-private", "127.0.0.0/8")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--page", "http"], "--page http: write a port such as 9464, or ADDRESS:PORT such as 0.0.0.0:9464"),
        (["--metrics", ":70000"], "--metrics :70000: write a port such as 9464, or ADDRESS:PORT such as 0.0.0.0:9464"),
        (["--max-torrents", "0"], "--max-torrents"),
        (["--max-time", "nan"], "--max-time"),
        (["--store", "redis://host"], "write postgresql://HOST/DATABASE or mysql://HOST/DATABASE"),
    ],
)
def test_a_bad_value_creates_nothing(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = lycosa("dht", "crawl", "--state", "state", *JOIN, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in assert_one_line(done.stderr)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("scheme", "driver", "extra"), [("mysql", "pymysql", "mysql"), ("postgresql", "psycopg", "postgresql")]
)
def test_a_store_without_its_driver_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, scheme: str, driver: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, driver, None)  # as if it were not installed
    with pytest.raises(UsageError) as raised:
        check_store(f"{scheme}://me:secret@host/torrents")
    assert str(raised.value) == f"{scheme}://host/torrents needs {driver}: pip install 'lycosa[{extra}]'"


def test_a_page_for_other_machines_needs_allow_remote(tmp_path: Path) -> None:
    with_page = ("--page", "0.0.0.0:0")
    done = lycosa("dht", "crawl", "--state", "state", *JOIN, *with_page, cwd=tmp_path)
    assert done.returncode == 2
    assert "would be open to other machines: add --allow-remote" in assert_one_line(done.stderr)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bind", "127.0.0.1:{used}", *JOIN[2:]], "already in use"),
        (["--bind", "127.0.0.1:0"], "add --bootstrap"),
        ([*JOIN, "--rules", "missing.toml"], "missing.toml"),
        ([*JOIN, "--store", "postgresql://127.0.0.1:1/torrents"], "cannot be used"),
        ([*JOIN, "--page", "{listening}"], "already in use"),
        ([*JOIN, "--page", "{free}", "--metrics", "{free}"], "already in use"),
        ([*JOIN, "--page", "0.0.0.0:0"], "--allow-remote"),
    ],
)
def test_a_crawl_that_cannot_start_leaves_nothing_behind(tmp_path: Path, arguments: list[str], said: str) -> None:
    with socket(type=SOCK_DGRAM) as used, create_server(("127.0.0.1", 0)) as listening:
        used.bind(("127.0.0.1", 0))
        ports = {"used": used.getsockname()[1], "listening": listening.getsockname()[1], "free": closed_port()}
        with_port = [each.format_map(ports) for each in arguments]
        done = lycosa("dht", "crawl", "--state", "deep/state", *with_port, cwd=tmp_path)
    assert done.returncode != 0
    assert said in assert_one_line(done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_crawl_that_cannot_start_removes_no_folder_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "notes.txt").write_text("mine")
    done = lycosa("dht", "crawl", "--state", "state", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "state" / "notes.txt").read_text() == "mine"


def test_a_large_new_index_is_filled_from_the_server_that_has_the_torrents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torrent_search, "DIVIDED_MIN", 2)
    monkeypatch.setattr(torrent_search, "PROCESSES", 2)
    server = f"postgresql://127.0.0.1:{closed_port()}/torrents"

    async def run() -> None:
        async with open_records(RecordsLocation(str(tmp_path), None), create=True) as store:
            await store.put([torrent(1), torrent(2)], 1_790_000_000.0)
            async with indexing(
                SimpleNamespace(store=store, beside=[]),
                RecordsLocation(str(tmp_path), server),
                str(tmp_path / "index"),
            ):
                pass

    asyncio.run(run())
    assert server in capsys.readouterr().err, "the processes that fill the index ask the server"


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("torrents", [0, 1])
def test_a_crawl_goes_on_while_its_index_cannot_be_opened(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    torrents: int,
    interrupted: bool,
) -> None:
    monkeypatch.setattr(torrent_indexer, "RETRY_MIN_S", 0.001)
    location, index = RecordsLocation(str(tmp_path), None), f"sphinx://127.0.0.1:{closed_port()}/torrents"

    async def run() -> None:
        async with open_records(location, create=True) as store:
            await store.put([torrent(number) for number in range(torrents)], 1_790_000_000.0)
            crawl = SimpleNamespace(store=store, beside=[])
            with suppress(asyncio.CancelledError):
                async with indexing(crawl, location, index):
                    following = asyncio.ensure_future(crawl.beside[0]())
                    await asyncio.wait([following], timeout=0.1)
                    assert not following.done()
                    following.cancel()
                    if interrupted:
                        raise asyncio.CancelledError

    asyncio.run(run())
    fault, *lacking = capsys.readouterr().err.splitlines()
    assert "does not answer (Connection refused): start searchd; trying again" in fault
    assert lacking == ["the index lacks torrents: `lycosa index` adds them"] * torrents


def test_a_crawl_goes_on_without_an_index_that_another_process_has_opened(capsys: pytest.CaptureFixture[str]) -> None:
    async def taken() -> None:
        raise IndexTaken("taken")

    asyncio.run(_follow(SimpleNamespace(run=taken)))
    assert capsys.readouterr().err == "taken. The crawl goes on without its index\n"
