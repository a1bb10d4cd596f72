"""DHT nodes of real BitTorrent clients on loopback: libtorrent in this process, aria2 and rtorrent as child processes.

    with libtorrent_nodes(12) as nodes: ...
    with Aria2Node(entry, infohash) as node: ...
    with RtorrentNode(entry, torrent) as node: ...

Each has a separate address, and only the given bootstrap nodes.
"""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.servers.proxies import RealProxy, new_address

RTORRENT = "rtorrent (apt-get install rtorrent) and script"
ALERT_MAX_S = 60.0
POLL_S = 0.01


def find_rtorrent() -> bool:
    """Return whether rtorrent is installed, and `script`, which gives it a terminal."""
    return shutil.which("rtorrent") is not None and shutil.which("script") is not None


class LibtorrentNode(NamedTuple):
    """A session of libtorrent with a DHT node."""

    session: Any
    host: str
    port: int

    @property
    def place(self) -> str:
        """Its address as users write it."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def add(self, place: str) -> None:
        """Add a node to its table."""
        host, _, port = place.rpartition(":")
        self.session.add_dht_node((host.strip("[]"), int(port)))

    def alert(self, kind: type, wanted: Callable[[Any], bool] = lambda _: True) -> Any:
        """Wait for an alert."""
        deadline = time.monotonic() + ALERT_MAX_S
        while time.monotonic() < deadline:
            for alert in self.session.pop_alerts():
                if isinstance(alert, kind) and wanted(alert):
                    return alert
            time.sleep(POLL_S)
        raise AssertionError(f"no {kind.__name__}")


@contextmanager
def libtorrent_nodes(count: int, *, host: str = "", **settings: Any) -> Iterator[list[LibtorrentNode]]:
    """Run sessions of libtorrent while the block runs, each on a separate address, or all on `host`.

    By default, the limits of libtorrent for messages per address do not apply, and a session answers sample_infohashes
    again after a second.
    """
    import libtorrent

    nodes = []
    for _ in range(count):
        address = host or new_address()
        listen = f"[{address}]:0" if ":" in address else f"{address}:0"
        common = {
            "listen_interfaces": listen,
            "outgoing_interfaces": address,
            "enable_dht": True,
            "dht_bootstrap_nodes": "",
            "dht_restrict_routing_ips": False,
            "dht_restrict_search_ips": False,
            "dht_ignore_dark_internet": False,
            "dht_prefer_verified_node_ids": False,
            "dht_block_ratelimit": 100_000,
            "dht_upload_rate_limit": 10_000_000,
            "dht_sample_infohashes_interval": 1,
            "enable_lsd": False,
            "enable_upnp": False,
            "enable_natpmp": False,
            "enable_ip_notifier": False,
            "alert_mask": libtorrent.alert.category_t.dht_notification
            | libtorrent.alert.category_t.dht_operation_notification,
        }
        session = libtorrent.session(common | settings)
        nodes.append(LibtorrentNode(session, address, session.listen_port()))
    try:
        yield nodes
    finally:
        for node in nodes:
            node.session.pause()
        nodes.clear()


class ClientNode(RealProxy):
    """A client that joins through `entry`, and looks for the peers of an infohash."""

    def __init__(self, entry: str, infohash: bytes) -> None:
        super().__init__()
        self._entry = entry
        self.infohash = infohash


class Aria2Node(ClientNode):
    """aria2. It does not answer unknown methods."""

    program = "aria2c"

    def _arguments(self) -> list[str]:
        return [
            "--no-conf",
            "--enable-dht=true",
            "--enable-dht6=false",
            f"--dht-listen-port={self.port}",
            f"--dht-listen-addr={self.address}",
            f"--dht-entry-point={self._entry}",
            f"--dht-file-path={self.home}/dht.dat",
            f"--listen-port={self.port}",
            f"--interface={self.address}",
            "--bt-enable-lpd=false",
            "--enable-peer-exchange=false",
            f"--dir={self.home}",
            f"magnet:?xt=urn:btih:{self.infohash.hex()}",
        ]


class RtorrentNode(ClientNode):
    """rtorrent. It needs a terminal, answers unknown methods with 204, and swaps the bytes of announced ports."""

    program = "script"
    ended_by = signal.SIGTERM  # `script` ends its child then

    def __init__(self, entry: str, infohash: bytes, torrent: bytes) -> None:
        super().__init__(entry, infohash)
        self._torrent = torrent

    def _arguments(self) -> list[str]:
        (self.home / "a.torrent").write_bytes(self._torrent)
        (self.home / "session").mkdir()
        commands = self._write(
            "commands",
            f"network.bind_address.set = {self.address}",
            f"network.port_range.set = {self.port}-{self.port}",
            "network.port_random.set = no",
            f"dht.port.set = {self.port}",
            "dht.mode.set = on",
            "protocol.pex.set = no",
            f"session.path.set = {self.home}/session",
            f"directory.default.set = {self.home}",
            f'schedule2 = entry, 1, 2, "dht.add_node={self._entry}"',
            f"load.start = {self.home}/a.torrent",
        )
        return ["-qc", f"exec env TERM=xterm HOME={self.home} rtorrent -n -o import={commands}", "/dev/null"]
