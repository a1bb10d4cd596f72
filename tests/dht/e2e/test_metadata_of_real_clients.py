"""Metadata from libtorrent, aria2 and transmission: both versions, hybrid torrents, and info dicts of three pieces."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop

from lycosa.core.errors import NoMetadata
from lycosa.dht.core.bencode import decode
from lycosa.dht.core.endpoints import AllowedNetworks, pack
from lycosa.dht.core.metadata.info import read_info
from lycosa.dht.peers import MetadataFetcher
from tests.conftest import need
from tests.servers.bittorrent import (
    ARIA2,
    LIBTORRENT,
    TRANSMISSION,
    Aria2,
    LibtorrentPeer,
    Torrent,
    Transmission,
    find_aria2,
    find_libtorrent,
    find_transmission,
    libtorrent_peer,
    plain_torrent,
    torrents_of_all_versions,
)

PLAIN = {"small": plain_torrent(500, 1), "three pieces": plain_torrent(40_000, 2)}
ANSWER_MAX_S = 60.0
"""Time limit until a client has read its torrents: it accepts connections earlier than that."""


@pytest.fixture(scope="module")
def torrents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Torrent]:
    need(LIBTORRENT, find_libtorrent())
    return {**PLAIN, **torrents_of_all_versions(tmp_path_factory.mktemp("torrents"))}


@pytest.fixture(scope="module")
def libtorrent(torrents: dict[str, Torrent]) -> Iterator[LibtorrentPeer]:
    with libtorrent_peer(list(torrents.values()), dht=True) as peer:
        yield peer


@pytest.fixture(scope="module")
def aria2() -> Iterator[bytes]:
    need(ARIA2, find_aria2())
    # An aria2 that serves two torrents answers for the one that it got first.
    with ExitStack() as stack:
        yield {name: stack.enter_context(Aria2([torrent])) for name, torrent in PLAIN.items()}


@pytest.fixture(scope="module")
def transmission() -> Iterator[bytes]:
    need(TRANSMISSION, find_transmission())
    with Transmission([PLAIN["three pieces"]]) as peer:
        yield peer


def fetch(infohash: bytes, address: str, port: int, **options: object) -> bytes:
    """Return metadata from one peer, which may need some time to read its torrents."""

    async def main() -> bytes:
        async with asyncio.timeout(ANSWER_MAX_S):
            while True:
                async with MetadataFetcher(os.urandom, allowed=AllowedNetworks(["127.0.0.0/8"]), **options) as fetches:
                    try:
                        return await fetches.fetch(infohash, [pack(address, port)])
                    except NoMetadata as error:
                        print(error)
                        await asyncio.sleep(0.1)

    return uvloop.run(main())


@pytest.mark.parametrize("name", ["v1", "v2", "hybrid", "small", "three pieces"])
def test_libtorrent_delivers(libtorrent, torrents, name):
    torrent = torrents[name]
    infohashes = {"v2": [torrent.v2[:20], torrent.v2], "hybrid": [torrent.v1, torrent.v2[:20], torrent.v2]}
    for infohash in infohashes.get(name, [torrent.v1]):
        assert fetch(infohash, libtorrent.address, libtorrent.port) == torrent.info


@pytest.mark.parametrize("name", PLAIN)
def test_aria2_delivers(aria2, name):
    peer = aria2[name]
    assert fetch(PLAIN[name].v1, peer.address, peer.port) == PLAIN[name].info


def test_transmission_delivers(transmission):
    torrent = PLAIN["three pieces"]
    assert fetch(torrent.v1, transmission.address, transmission.port) == torrent.info


@pytest.mark.parametrize("name", ["v1", "v2", "hybrid"])
def test_the_info_dict_equals_that_of_libtorrent(torrents, name):
    import libtorrent as oracle

    torrent = torrents[name]
    info, theirs = read_info(torrent.info), oracle.load_torrent_buffer(torrent.file).ti
    hashes = theirs.info_hashes()
    assert info.infohash_v1 == (hashes.v1.to_bytes() if hashes.has_v1() else None)
    assert info.infohash_v2 == (hashes.v2.to_bytes() if hashes.has_v2() else None)
    storage = theirs.layout()
    found = [(b"/".join((info.name, *file.path)).decode(), file.size_bytes) for file in info.files if not file.padding]
    flags = [storage.file_flags(index) for index in range(storage.num_files())]
    real = [index for index, flag in enumerate(flags) if not flag & storage.flag_pad_file]
    assert found == [(storage.file_path(index), storage.file_size(index)) for index in real]
    assert info.size_bytes == 3 * 70_000


def test_libtorrent_takes_our_node_from_the_port_message_and_tells_its_own(libtorrent, torrents):
    """It pings the node whose port we sent, from the port that it sent us."""
    nodes: list[bytes] = []
    with socket.socket(type=socket.SOCK_DGRAM) as node:
        node.bind(("127.0.0.1", 0))
        node.settimeout(ANSWER_MAX_S)
        metadata = fetch(
            torrents["v1"].v1,
            *(libtorrent.address, libtorrent.port),
            dht_port=node.getsockname()[1],
            on_dht_node=nodes.append,
            local_ip="127.0.0.1",
        )
        assert metadata == torrents["v1"].info
        data, (address, port) = node.recvfrom(2048)
    assert decode(data, strict=False)[b"y"] == b"q"
    assert address == libtorrent.address
    assert set(nodes) == {pack(address, port)}


def test_libtorrent_accepts_the_torrent_files_that_we_write(libtorrent, torrents, tmp_path: Path):
    import libtorrent as oracle

    from lycosa.dht.core.torrent_file import TorrentFile, write_torrent_file

    for name in ("v1", "v2", "hybrid"):
        info = fetch(torrents[name].v1 if name != "v2" else torrents[name].v2, libtorrent.address, libtorrent.port)
        path = tmp_path / f"{name}.torrent"
        path.write_bytes(write_torrent_file(TorrentFile(info, (("127.0.0.1", 6881),))))
        theirs = oracle.load_torrent_file(str(path))
        assert theirs.dht_nodes == [("127.0.0.1", 6881)]
        assert bytes(theirs.ti.info_section()) == torrents[name].info
