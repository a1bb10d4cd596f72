"""The parts of torrent files that the DHT needs: the info dict, and the nodes of a trackerless torrent (BEP 5).

    d8:announce...4:infod...e5:nodesll9:127.0.0.1i6881eeee

The bytes of the info dict stay unchanged, because their hash is the infohash.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lycosa.core.errors import BadTorrentFile
from lycosa.dht.core.bencode import BencodeError, decode_with_span, encode
from lycosa.dht.core.metadata.info import DEPTH_MAX

TRACKERS = (b"announce", b"announce-list")
NODES_MAX = 64
"""Usually a file has the 8 closest nodes."""

HOST_BYTES_MAX = 255

Node = tuple[str, int]
"""Host (an address or a name) and port."""


@dataclass(frozen=True, slots=True)
class TorrentFile:
    """`fields` are the other fields of the outermost dict, which are kept."""

    info: bytes
    nodes: tuple[Node, ...] = ()
    fields: tuple[tuple[bytes, Any], ...] = ()


def read_torrent_file(data: bytes) -> TorrentFile:
    """Parse a torrent file. Invalid nodes are skipped. Raises `BadTorrentFile`."""
    try:
        fields, info = decode_with_span(data, b"info", strict=False, max_depth=DEPTH_MAX)
    except BencodeError as error:
        raise BadTorrentFile(f"not a torrent file: {error}") from error
    if info is None or not info.startswith(b"d"):
        raise BadTorrentFile("not a torrent file: it has no info dict")
    others = tuple((key, value) for key, value in sorted(fields.items()) if key not in (b"info", b"nodes"))
    return TorrentFile(info, _nodes(fields.get(b"nodes")), others)


def write_torrent_file(torrent: TorrentFile) -> bytes:
    """Return the bytes of a torrent file. With nodes, it has no trackers (BEP 5)."""
    fields = {key: encode(value) for key, value in torrent.fields if not (torrent.nodes and key in TRACKERS)}
    fields[b"info"] = torrent.info
    if torrent.nodes:
        fields[b"nodes"] = encode([[host.encode(), port] for host, port in torrent.nodes])
    return b"d" + b"".join(encode(key) + fields[key] for key in sorted(fields)) + b"e"


def _nodes(value: Any) -> tuple[Node, ...]:
    nodes = (_node(each) for each in value[:NODES_MAX]) if isinstance(value, list) else ()
    return tuple(node for node in nodes if node is not None)


def _node(value: Any) -> Node | None:
    match value:
        case [bytes(host), int(port)] if 0 < port < 65_536 and 0 < len(host) <= HOST_BYTES_MAX:
            text = host.decode("ascii", "replace")
            return (text, port) if text.isprintable() and "\ufffd" not in text else None
    return None
