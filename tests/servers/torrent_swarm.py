"""A private DHT of real libtorrent sessions on loopback that share torrents, in a process of its own.

    with torrent_swarm(folder, sessions=8, torrents=100) as swarm:
        swarm.bootstrap, swarm.infohashes

Each torrent is seeded by one session. The sessions send nothing off loopback, and nobody has any contents.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from tests.conftest import ROOT
from tests.servers.bittorrent import LibtorrentPeer, Torrent, libtorrent_peer, plain_torrent

FORMED_MAX_S = 60.0
SETTINGS = {
    "dht_prefer_verified_node_ids": False,
    "dht_block_ratelimit": 100_000,
    "dht_upload_rate_limit": 10_000_000,
    "dht_sample_infohashes_interval": 1,
    "ssrf_mitigation": False,
}


class TorrentSwarm(NamedTuple):
    """`infohashes` as hexadecimal, by the name of the torrent."""

    bootstrap: str
    infohashes: dict[str, str]


@contextmanager
def torrent_swarm(*, sessions: int, torrents: int) -> Iterator[TorrentSwarm]:
    """Run the sessions until the block ends; enter when all torrents are announced."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.servers.torrent_swarm", str(sessions), str(torrents)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield TorrentSwarm(**json.loads(process.stdout.readline()))
    finally:
        process.kill()
        process.communicate()


def main(sessions: int, count: int) -> None:
    """Run the sessions until standard input ends."""
    torrents = [plain_torrent(200 + 40 * number, seed=number + 1) for number in range(count)]
    with ExitStack() as stack:
        peers = [
            stack.enter_context(libtorrent_peer(torrents[number::sessions], dht=True)) for number in range(sessions)
        ]
        for peer in peers:
            peer.session.apply_settings(SETTINGS)
        _form(peers)
        _announce(peers)
        bootstrap = f"{peers[0].address}:{peers[0].port}"
        print(json.dumps({"bootstrap": bootstrap, "infohashes": _named(torrents)}), flush=True)
        sys.stdin.read()


def _named(torrents: Sequence[Torrent]) -> dict[str, str]:
    return {torrent.name: torrent.v1.hex() for torrent in torrents}


def _form(peers: Sequence[LibtorrentPeer]) -> None:
    """Introduce the sessions to each other until each knows most of them."""
    deadline = time.monotonic() + FORMED_MAX_S
    while min(_nodes(peer.session) for peer in peers) < min(len(peers) - 1, 8) / 2:
        assert time.monotonic() < deadline, "the private DHT did not form"
        for peer in peers:
            for other in peers:
                if other is not peer:
                    peer.session.add_dht_node((other.address, other.port))
        time.sleep(0.5)


def _nodes(session: Any) -> int:
    return int(session.status().dht_nodes)


def _announce(peers: Sequence[LibtorrentPeer]) -> None:
    """Announce all torrents twice: the first lookups of a young table miss the closest nodes."""
    for _ in range(2):
        for peer in peers:
            for handle in peer.session.get_torrents():
                handle.force_dht_announce()
        time.sleep(2.0)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
