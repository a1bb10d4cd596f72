"""`lycosa dht metadata` and `torrent-nodes` as processes on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from lycosa.cli.dht.metadata import MetadataJob
from lycosa.dht.core.bencode import encode
from lycosa.dht.core.magnet import parse_magnet
from lycosa.dht.core.torrent_file import TorrentFile, read_torrent_file, write_torrent_file
from tests.cli.command import assert_one_line, lycosa
from tests.dht.e2e.nodes import ANNOUNCE_MAX_S, ON_LOOPBACK, announce, dht_node
from tests.servers.seeders import Behaviour, seeding

INFO = encode({b"length": 5, b"name": b"a \x1b[31mfile", b"piece length": 16384, b"pieces": b"x" * 40_000})
INFOHASH = hashlib.sha1(INFO).hexdigest()
OTHER = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def seeder(metadata: Mapping[bytes, bytes], host: str, behaviour: Behaviour = Behaviour.HONEST) -> Iterator[int]:
    """Deliver metadata, in a thread. Yield the port."""
    ports: list[int] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()

    async def serve() -> None:
        async with seeding(metadata, behaviour, host=host) as port:
            ports.append(port)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert ready.wait(60)
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()


def test_metadata_comes_from_a_peer_that_the_dht_returns(tmp_path: Path) -> None:
    with dht_node(tmp_path / "1") as (_, node), seeder({bytes.fromhex(INFOHASH): INFO}, "127.0.0.9") as port:
        join = ("--bootstrap", node, *ON_LOOPBACK)
        announced = lycosa(
            "dht", "announce", INFOHASH, "--peer-port", port, "--bind", "127.0.0.9:0", *join, cwd=tmp_path
        )
        assert announced.returncode == 0, announced.stderr
        magnets = (f"magnet:?xt=urn:btih:{INFOHASH}", INFOHASH, OTHER)
        done = lycosa("dht", "metadata", *magnets, "-o", "out", "--bind", "127.0.0.4:0", *join, cwd=tmp_path)
        again = lycosa("dht", "metadata", INFOHASH, "-o", "out", "--bind", "127.0.0.4:0", *join, cwd=tmp_path)
    assert done.stdout == f"out/{INFOHASH}.torrent\n"
    assert f"{INFOHASH}: a ?[31mfile: 1 file, 5 B\n" in done.stderr
    assert f"{OTHER}: no peer delivered (no peers)\n" in done.stderr
    assert done.stderr.splitlines()[-1] == "1 of 2 torrents fetched"
    assert done.returncode == 1
    assert read_torrent_file((tmp_path / "out" / f"{INFOHASH}.torrent").read_bytes()).info == INFO
    assert again.returncode == 0, again.stderr
    assert "already exists" in again.stderr


def test_a_torrent_file_gets_the_closest_contacts_as_nodes_and_others_join_through_it(tmp_path: Path) -> None:
    torrent = tmp_path / "a.torrent"
    torrent.write_bytes(write_torrent_file(TorrentFile(INFO, (), ((b"announce", b"http://tracker.example/"),))))
    with (
        dht_node(tmp_path / "1") as (_, first),
        dht_node(tmp_path / "2", "--bootstrap", first, bind="127.0.0.2:0") as (
            _,
            second,
        ),
    ):
        join = ("--bind", "127.0.0.4:0", "--bootstrap", first, *ON_LOOPBACK)
        announce(2, OTHER, "--peer-port", 9, *join, cwd=tmp_path)  # so the nodes know each other
        deadline, shown = time.monotonic() + ANNOUNCE_MAX_S, []
        while sorted(shown) != sorted([first, second]):  # late answers are not awaited
            assert time.monotonic() < deadline, shown
            written = lycosa("dht", "torrent-nodes", torrent, "-o", torrent, *join, cwd=tmp_path)
            assert written.returncode == 0, written.stderr
            shown = lycosa("dht", "torrent-nodes", torrent, cwd=tmp_path).stdout.split()
        join = ("--bind", "127.0.0.4:0", "--bootstrap", torrent, *ON_LOOPBACK)
        assert announce(2, OTHER, "--peer-port", 9, *join, cwd=tmp_path).returncode == 0
    content = read_torrent_file(torrent.read_bytes())
    assert (content.info, content.fields) == (INFO, ())


def test_waiting_for_a_silent_peer_of_the_link_ends_with_the_timeout(tmp_path: Path) -> None:
    with (
        dht_node(tmp_path / "1") as (_, node),
        seeder({bytes.fromhex(INFOHASH): INFO}, "127.0.0.9", Behaviour.SILENT) as port,
    ):
        magnet = f"magnet:?xt=urn:btih:{INFOHASH}&x.pe=127.0.0.9:{port}"
        join = ("--bind", "127.0.0.4:0", "--bootstrap", node, *ON_LOOPBACK)
        done = lycosa("dht", "metadata", magnet, "--timeout", 1, *join, cwd=tmp_path)
    assert done.returncode == 1
    assert f"{INFOHASH}: no metadata within 1 s\n" in done.stderr
    assert not list(tmp_path.glob("*.torrent"))


def test_metadata_that_has_only_one_of_two_infohashes_is_not_written(tmp_path: Path) -> None:
    with dht_node(tmp_path / "1") as (_, node), seeder({bytes.fromhex(INFOHASH): INFO}, "127.0.0.9") as port:
        magnet = f"magnet:?xt=urn:btih:{INFOHASH}&xt=urn:btmh:1220{'0' * 64}&x.pe=127.0.0.9:{port}"
        join = ("--bind", "127.0.0.4:0", "--bootstrap", node, *ON_LOOPBACK)
        done = lycosa("dht", "metadata", magnet, *join, cwd=tmp_path)
    assert (
        f"{INFOHASH}: the link names two torrents: the metadata has only one of the link's infohashes\n" in done.stderr
    )
    assert done.returncode == 1
    assert not list(tmp_path.glob("*.torrent"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("torrent-nodes", "none"), "none: no such file or directory"),
        (("torrent-nodes", "text"), "text: not a torrent file: "),
        (("lookup", OTHER, "--bootstrap", "plain.torrent"), "--bootstrap plain.torrent: the torrent contains no nodes"),
        (("metadata", "magnet:?xt=x"), "magnet:?xt=x: no infohash in it; write magnet:?xt=urn:btih:"),
        (("metadata",), "metadata needs MAGNET..."),
    ],
)
def test_a_mistake_is_reported_in_one_line(arguments: tuple[str, ...], message: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "plain.torrent").write_bytes(write_torrent_file(TorrentFile(INFO)))
    done = lycosa("dht", *arguments, cwd=tmp_path)
    assert assert_one_line(done.stderr).startswith(message), done.stderr
    assert done.returncode == 2


def test_a_file_whose_name_is_too_long_counts_as_not_existing() -> None:
    assert not MetadataJob(parse_magnet(OTHER), Path("x" * 300)).is_there()
