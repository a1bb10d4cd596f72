"""What the pages show of a torrent. Names are untrusted: they are escaped, and only matches are marked, with `<b>`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from html import escape
from itertools import islice
from typing import NamedTuple
from urllib.parse import quote

from lycosa.core.units import format_size
from lycosa.search.core.highlight import Highlighter
from lycosa.search.torrents import FILES_READ_MAX
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import StoredTorrent

FILES_SHOWN_MAX = 1000
FOLDERS_DEEP_MAX = 12
"""Maximum depth of the tree. Deeper folders are joined into one name."""
MATCHING_FILES = 3
NAME_SHOWN_MAX = 400


class TorrentView(NamedTuple):
    """A torrent in a list. `name` is HTML. `seeders` is None if the peers were never counted."""

    infohash: str
    name: str
    title: str
    magnet: str
    size: str
    files: int
    found: int
    found_at: str
    seeders: int | None
    leechers: int | None
    type: str
    languages: tuple[str, ...]
    matching: list[str]
    """Paths of files, as HTML, that match a term of the query which `name` lacks."""


@dataclass(slots=True)
class Folder:
    """A folder of the file tree. `name` is HTML."""

    name: str
    size_bytes: int = 0
    count: int = 0
    folders: dict[str, Folder] = field(default_factory=dict)
    files: list[tuple[str, str]] = field(default_factory=list)
    """Names as HTML, and sizes."""


def piece_size(size_bytes: int) -> str:
    """Return the size of pieces in powers of 1024, as torrent programs do: nearly all are powers of two."""
    for unit, unit_bytes in (("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes % unit_bytes == 0:
            return f"{size_bytes // unit_bytes:,} {unit}"
    return format_size(size_bytes)


def torrent_view(torrent: StoredTorrent, highlighter: Highlighter | None) -> TorrentView:
    """Return the view of a torrent in a list."""
    record, facts = torrent.record, facts_of_torrent(torrent)
    counted = torrent.counted is not None
    name = record.name.strip() or "Unnamed"
    return TorrentView(
        infohash=infohash_hex(torrent),
        name=highlighter.title(name[:NAME_SHOWN_MAX]) if highlighter else escape(name[:NAME_SHOWN_MAX]),
        title=name,
        magnet=magnet_uri(torrent),
        size=format_size(torrent.size_bytes),
        files=torrent.files_count,
        found=record.discovered,
        found_at=iso_time(record.discovered),
        seeders=torrent.seeders if counted else None,
        leechers=torrent.leechers if counted else None,
        type=facts.type.name.lower(),
        languages=facts.languages,
        matching=_matching(torrent, highlighter) if highlighter else [],
    )


def facts_of_torrent(torrent: StoredTorrent) -> ContentFacts:
    """Return the facts about the content; empty if unknown."""
    return torrent.record.content or ContentFacts()


def infohash_hex(torrent: StoredTorrent) -> str:
    """Return the infohash in the links to a torrent: of version 1, else of version 2."""
    return (torrent.record.infohash_v1 or torrent.record.infohash_v2 or b"").hex()


def magnet_uri(torrent: StoredTorrent) -> str:
    """Return the magnet link: infohashes and name, no trackers."""
    record = torrent.record
    topics = [f"xt=urn:btih:{record.infohash_v1.hex()}"] if record.infohash_v1 else []
    topics += [f"xt=urn:btmh:1220{record.infohash_v2.hex()}"] if record.infohash_v2 else []
    return f"magnet:?{'&'.join(topics)}&dn={quote(record.name[:NAME_SHOWN_MAX], safe='', errors='replace')}"


def file_tree(torrent: StoredTorrent, highlighter: Highlighter | None) -> Folder:
    """Return the first FILES_SHOWN_MAX files as a tree."""
    shown = highlighter.title if highlighter else escape
    root = Folder("")
    for file in torrent.record.files[:FILES_SHOWN_MAX]:
        *above, name = [part for part in file.path.split("/") if part] or ["Unnamed"]
        folder = root
        folder.size_bytes += file.size_bytes
        folder.count += 1
        for part in _shallow(above):
            if part not in folder.folders:
                folder.folders[part] = Folder(shown(part))
            folder = folder.folders[part]
            folder.size_bytes += file.size_bytes
            folder.count += 1
        folder.files.append((shown(name), format_size(file.size_bytes)))
    return root


def iso_time(seconds: float) -> str:
    """Return a time in ISO 8601: "2026-11-05T07:00:00Z"."""
    return _moment(seconds).isoformat().replace("+00:00", "Z")


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0), 253_402_300_799), UTC)


def _shallow(parts: Sequence[str]) -> Iterable[str]:
    if len(parts) <= FOLDERS_DEEP_MAX:
        return parts
    return [*parts[: FOLDERS_DEEP_MAX - 1], "/".join(parts[FOLDERS_DEEP_MAX - 1 :])]


def _matching(torrent: StoredTorrent, highlighter: Highlighter) -> list[str]:
    paths = (file.path[-NAME_SHOWN_MAX:] for file in torrent.record.files[:FILES_READ_MAX])
    return [
        highlighter.title(path)
        for path in islice(highlighter.other_matches(torrent.record.name, paths), MATCHING_FILES)
    ]
