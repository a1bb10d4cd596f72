"""Real BitTorrent clients on loopback that have the metadata of torrents: libtorrent, aria2, transmission.

    with Aria2([torrent]) as peer: ...              # a child process; peer.endpoint
    with Transmission([torrent]) as peer: ...
    with libtorrent_peer([torrent]) as peer: ...    # a session of this process

They have the torrent files, not the contents, and nobody asks for contents. `torrents_of_all_versions` makes torrents
of both versions with libtorrent; `plain_torrent` makes one of version 1 without it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import random
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.proxies import RealProxy, new_address

ARIA2 = "aria2 (apt-get install aria2)"
TRANSMISSION = "transmission-daemon (apt-get install transmission-daemon)"
LIBTORRENT = "libtorrent (pip install libtorrent)"
"""The texts for `need`."""


def find_aria2() -> bool:
    """Return whether aria2 is installed."""
    return shutil.which("aria2c") is not None


def find_transmission() -> bool:
    """Return whether transmission-daemon is installed."""
    return shutil.which("transmission-daemon") is not None


def find_libtorrent() -> bool:
    """Return whether libtorrent can be imported. It has no wheel for some versions of Python."""
    return importlib.util.find_spec("libtorrent") is not None


class Torrent(NamedTuple):
    """A torrent file, with the name and the info dict that clients must find for it."""

    name: str
    file: bytes
    info: bytes

    @property
    def v1(self) -> bytes:
        """The infohash of version 1."""
        return hashlib.sha1(self.info).digest()

    @property
    def v2(self) -> bytes:
        """The infohash of version 2, in full."""
        return hashlib.sha256(self.info).digest()


def plain_torrent(info_bytes: int, seed: int = 1) -> Torrent:
    """Return a torrent of version 1 whose info dict has about this size. Its contents exist nowhere."""
    pieces = max(1, (info_bytes - 90) // 20)
    hashes = random.Random(seed).randbytes(20 * pieces)
    name = f"canned-{seed}"
    info = b"d6:lengthi%de4:name%d:%b12:piece lengthi16384e6:pieces%d:%be" % (
        *(pieces * 16_384, len(name), name.encode()),
        *(len(hashes), hashes),
    )
    return Torrent(name, b"d4:info%be" % info, info)


def torrents_of_all_versions(folder: Path) -> dict[str, Torrent]:
    """Return torrents of version 1, version 2, and both, made by libtorrent."""
    import libtorrent

    contents = folder / "contents"
    contents.mkdir()
    for number in range(3):
        (contents / f"file {number}.bin").write_bytes(random.Random(number).randbytes(70_000))
    files = libtorrent.list_files(str(contents))
    made = {}
    flags = {"v1": libtorrent.create_torrent.v1_only, "v2": libtorrent.create_torrent.v2_only, "hybrid": 0}
    for name, flag in flags.items():
        maker = libtorrent.create_torrent(files, 16_384, flag)
        libtorrent.set_piece_hashes(maker, str(folder))
        file = libtorrent.bencode(maker.generate())
        info = libtorrent.torrent_info(libtorrent.bdecode(file)).info_section()
        made[name] = Torrent(name, file, bytes(info))
    return made


class RealPeer(RealProxy):
    """A BitTorrent client as a child process, which lives and dies as a `RealProxy` does."""

    def __init__(self, torrents: Sequence[Torrent]) -> None:
        super().__init__()
        self._torrents = torrents

    def _files(self) -> list[str]:
        paths = [self.home / f"{torrent.name}.torrent" for torrent in self._torrents]
        for path, torrent in zip(paths, self._torrents, strict=True):
            path.write_bytes(torrent.file)
        return [str(path) for path in paths]


class Aria2(RealPeer):
    """aria2. It has no DHT node here."""

    program = "aria2c"

    def _arguments(self) -> list[str]:
        off = [f"--{name}=false" for name in ("enable-dht", "enable-dht6", "bt-enable-lpd", "enable-peer-exchange")]
        place = [f"--listen-port={self.port}", f"--interface={self.address}", f"--dir={self.home}"]
        return ["--no-conf", *off, *place, "--file-allocation=none", "--seed-ratio=0.0", *self._files()]


class Transmission(RealPeer):
    """transmission-daemon. It answers requests for metadata after four seconds."""

    program = "transmission-daemon"

    def _arguments(self) -> list[str]:
        settings = {
            "bind-address-ipv4": self.address,
            "bind-address-ipv6": "::1",
            "peer-port": self.port,
            "rpc-enabled": False,
            "dht-enabled": False,
            "lpd-enabled": False,
            "pex-enabled": False,
            "port-forwarding-enabled": False,
            "utp-enabled": False,
            "preallocation": 0,
            "download-dir": str(self.home),
            "watch-dir-enabled": True,
            "watch-dir": str(self.home),
        }
        self._files()
        self._write("settings.json", json.dumps(settings))
        return ["--foreground", "--config-dir", str(self.home), "--log-error"]


class LibtorrentPeer(NamedTuple):
    """A session of libtorrent, and where it listens."""

    session: Any
    address: str
    port: int


@contextmanager
def libtorrent_peer(
    torrents: Sequence[Torrent], *, dht: bool = False, settings: Mapping[str, Any] | None = None
) -> Iterator[LibtorrentPeer]:
    """Run a session of libtorrent while the block runs. It sends nothing off loopback."""
    import libtorrent

    address = new_address()
    session = libtorrent.session(
        {
            "listen_interfaces": f"{address}:0",
            "outgoing_interfaces": address,
            "enable_dht": dht,
            "dht_bootstrap_nodes": "",
            "dht_restrict_routing_ips": False,
            "dht_restrict_search_ips": False,
            "dht_ignore_dark_internet": False,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "enable_ip_notifier": False,
            "allow_multiple_connections_per_ip": True,
            "alert_mask": libtorrent.alert.category_t.error_notification,
            **(settings or {}),
        }
    )
    with tempfile.TemporaryDirectory() as folder:
        for torrent in torrents:
            parameters = libtorrent.add_torrent_params()
            parameters.ti = libtorrent.torrent_info(libtorrent.bdecode(torrent.file))
            parameters.save_path = folder
            parameters.flags |= libtorrent.torrent_flags.seed_mode  # do not look for the contents
            # Torrents that libtorrent manages would wait for their turn.
            parameters.flags &= ~(libtorrent.torrent_flags.auto_managed | libtorrent.torrent_flags.paused)
            session.add_torrent(parameters)
        yield LibtorrentPeer(session, address, session.listen_port())
        session.pause()
        del session
