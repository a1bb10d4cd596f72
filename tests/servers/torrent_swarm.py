"""A private DHT of real libtorrent sessions on loopback that share torrents of all kinds, in a separate process.

    with torrent_swarm(sessions=8, torrents=100) as swarm:
        swarm.bootstrap, swarm.nodes, swarm.torrents
        swarm.counts()

Each torrent is seeded by one session. The sessions send nothing off loopback, and have no content. With `strict`,
they have libtorrent's own limits against floods, and a sample interval of ten seconds.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from typing import Any, NamedTuple

from tests.conftest import ROOT
from tests.servers.bittorrent import LibtorrentPeer, Torrent, libtorrent_peer
from tests.servers.children import started
from tests.servers.torrent_kinds import torrents_of_all_kinds

FORMED_MAX_S = 120.0
NEIGHBOURS = 8
"""Number of sessions to which each one is introduced."""
PRIVATE = {"dht_prefer_verified_node_ids": False, "ssrf_mitigation": False}
LENIENT = {
    **PRIVATE,
    "dht_block_ratelimit": 100_000,
    "dht_upload_rate_limit": 10_000_000,
    "dht_sample_infohashes_interval": 1,
}
"""Settings for the start of a session, which reads the limit per host only then, not when its settings change."""
STRICT = {**PRIVATE, "dht_sample_infohashes_interval": 10}


class SwarmCounts(NamedTuple):
    """Bytes of content that all sessions have sent and received."""

    payload_sent: int
    payload_received: int


class TorrentSwarm:
    """A running swarm. `nodes` are the addresses of its DHT nodes."""

    def __init__(self, process: subprocess.Popen[str], torrents: list[Torrent]) -> None:
        assert process.stdout is not None
        self._process = process
        self.torrents = torrents
        self.nodes: list[tuple[str, int]] = [(host, port) for host, port in json.loads(process.stdout.readline())]

    @property
    def bootstrap(self) -> str:
        """A node to join through."""
        host, port = self.nodes[0]
        return f"{host}:{port}"

    def counts(self) -> SwarmCounts:
        """Return the counts since the start."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print("counts", file=self._process.stdin, flush=True)
        return SwarmCounts(*json.loads(self._process.stdout.readline()))


@contextmanager
def torrent_swarm(*, sessions: int, torrents: int, strict: bool = False) -> Iterator[TorrentSwarm]:
    """Run the sessions until the block ends; enter when all torrents are announced."""
    command = [sys.executable, "-m", "tests.servers.torrent_swarm", str(sessions), str(torrents), str(int(strict))]
    # A separate session: Ctrl-C in the terminal must not reach it; it is killed at the end of the block.
    with started(command, cwd=ROOT, stdin=subprocess.PIPE, start_new_session=True) as process:
        yield TorrentSwarm(process, torrents_of_all_kinds(torrents))


def main(sessions: int, count: int, strict: int) -> None:
    """Run the sessions until standard input ends. Answer each line of it with the counts."""
    torrents = torrents_of_all_kinds(count)
    settings = STRICT if strict else LENIENT
    with ExitStack() as stack:
        peers = [
            stack.enter_context(libtorrent_peer(torrents[number::sessions], dht=True, settings=settings))
            for number in range(sessions)
        ]
        _form(peers, every_s=3.0 if strict else 0.25)
        _announce(peers, every_s=1.5 if strict else 0.0, settle_s=3.0 if strict else 1.0)
        print(json.dumps([(peer.address, peer.port) for peer in peers]), flush=True)
        while sys.stdin.readline():
            print(json.dumps(_counts(peers)), flush=True)


def _form(peers: Sequence[LibtorrentPeer], every_s: float) -> None:
    """Introduce the sessions to each other until each knows most of its neighbours. They find the rest without help."""
    deadline = time.monotonic() + FORMED_MAX_S
    while min(_nodes(peer.session) for peer in peers) < min(len(peers) - 1, NEIGHBOURS) / 2:
        assert time.monotonic() < deadline, "the private DHT did not form"
        for number, peer in enumerate(peers):
            for step in range(1, min(len(peers), NEIGHBOURS + 1)):
                other = peers[(number + step * step) % len(peers)]
                if other is not peer:
                    peer.session.add_dht_node((other.address, other.port))
        time.sleep(every_s)


def _nodes(session: Any) -> int:
    import libtorrent

    session.post_session_stats()
    while True:
        session.wait_for_alert(1000)
        for alert in session.pop_alerts():
            if isinstance(alert, libtorrent.session_stats_alert):
                return int(alert.values["dht.dht_nodes"])


def _announce(peers: Sequence[LibtorrentPeer], every_s: float, settle_s: float) -> None:
    """Announce all torrents twice: the first lookups of a young table miss the closest nodes."""
    for _ in range(2):
        for handles in zip_longest(*(peer.session.get_torrents() for peer in peers)):
            for handle in filter(None, handles):
                handle.force_dht_announce()
            time.sleep(every_s)
        time.sleep(settle_s)


def _counts(peers: Sequence[LibtorrentPeer]) -> tuple[int, int]:
    statuses = [handle.status() for peer in peers for handle in peer.session.get_torrents()]
    return sum(each.total_payload_upload for each in statuses), sum(each.total_payload_download for each in statuses)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
