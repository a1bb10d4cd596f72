"""Torrents as text: JSON lines (for imports and exports), CSV rows and magnet links.

    {"infohash_v1": "<40 hex>", "infohash_v2": "<64 hex>", "name": "...", "size_bytes": 7, "piece_bytes": 16384,
     "files": [{"path": "folder/a.txt", "size_bytes": 7}], "private": true, "comment": "...", "created": 1700000000,
     "discovered": 1700000000, "seeders": 2, "leechers": 1, "counted": 1700000000,
     "seen": 1700000000, "content": {"type": "video", "category": 2040, ...}}

Times are unix seconds. A line needs `name` and at least one infohash; other fields may be absent or null. Unknown
fields, `size_bytes`, `seen` and `content` are not read. Lines are untrusted: whatever the bytes are, `parse_line`
raises only `BadTorrentLine` and `FilesUnknown`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote

import msgspec

from lycosa.core.errors import LycosaError
from lycosa.storage.core.content_facts import ContentFacts
from lycosa.storage.core.torrent_record import NUMBER_MAX, Popularity, StoredFile, StoredTorrent, TorrentRecord

LINE_MAX = 32 << 20
"""Maximum bytes of a line. A torrent of 5,000 files takes about 0.5 MB."""
PEERS_MAX = 2**31 - 1
TIME_MAX = 253_402_300_799
"""The end of the year 9999. Some clients write milliseconds, or worse."""
CSV_FIELDS = (
    *("infohash_v1", "infohash_v2", "name", "size_bytes", "files", "piece_bytes", "private", "comment", "created"),
    *("discovered", "seen", "seeders", "leechers", "counted", "type", "category"),
)

ALWAYS = {"type", "category"}
"""The facts about the content that are written even if they are unknown."""

_Number = Annotated[int, msgspec.Meta(ge=0, le=NUMBER_MAX)]
_Peers = Annotated[int, msgspec.Meta(ge=0, le=PEERS_MAX)]
_HEX = re.compile(r"[0-9A-Fa-f]*")
_PLACE = re.compile(r"^(.*) - at `\$\.([^`]*)`$")
"""A message of msgspec, and the field that it is about."""


class BadTorrentLine(LycosaError):
    """A line that describes no torrent."""


class FilesUnknown(LycosaError):
    """A line that lists no files. `record` has its other fields."""

    def __init__(self, record: TorrentRecord) -> None:
        super().__init__("the files are not known")
        self.record = record


class FileFields(msgspec.Struct):
    """A file of a torrent in a line."""

    path: str
    size_bytes: _Number


class TorrentFields(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The fields that are read from a line."""

    infohash_v1: str | None = ""
    infohash_v2: str | None = ""
    name: str
    piece_bytes: _Number | None = 0
    files: list[FileFields] | None = None
    private: bool | None = False
    comment: str | None = ""
    created: int | None = None
    discovered: int | None = None
    seeders: _Peers | None = 0
    leechers: _Peers | None = 0
    counted: int | None = None


class WrittenFields(TorrentFields, kw_only=True, omit_defaults=True):
    """The fields that are written to a line."""

    size_bytes: int
    seen: int
    content: dict[str, Any] = {}


class ImportedTorrent(NamedTuple):
    """`popularity` is None if the peers were never counted."""

    record: TorrentRecord
    popularity: Popularity | None = None


_DECODER = msgspec.json.Decoder(TorrentFields)


def parse_line(line: bytes, now: int) -> ImportedTorrent:
    """Read a line. Raises `BadTorrentLine`, `FilesUnknown`."""
    if len(line) > LINE_MAX:
        raise BadTorrentLine(f"longer than {LINE_MAX:,} bytes")
    try:
        fields = _DECODER.decode(line)
    except UnicodeDecodeError:
        raise BadTorrentLine("not UTF-8") from None
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        place = _PLACE.match(str(error))
        raise BadTorrentLine(f"{place[2]}: {place[1].replace('`', '')}" if place else str(error)) from None
    return _imported(fields, now)


def format_line(torrent: StoredTorrent) -> bytes:
    """Return the line of a torrent, without the line end."""
    record = torrent.record
    v1, v2 = _hexadecimal(record)
    return msgspec.json.encode(
        WrittenFields(
            infohash_v1=v1,
            infohash_v2=v2,
            name=record.name,
            size_bytes=record.size_bytes,
            piece_bytes=record.piece_bytes,
            files=[FileFields(*file) for file in record.files],
            private=record.private,
            comment=record.comment,
            created=record.created,
            discovered=record.discovered,
            seen=torrent.seen,
            seeders=torrent.seeders,
            leechers=torrent.leechers,
            counted=torrent.counted,
            content=_content(record.content),
        )
    )


def csv_row(torrent: StoredTorrent) -> tuple[str | int | None, ...]:
    """Return the values of CSV_FIELDS. `files` is the number of files."""
    record = torrent.record
    return (
        *_hexadecimal(record),
        *(record.name, record.size_bytes, len(record.files), record.piece_bytes, int(record.private)),
        *(record.comment, record.created, record.discovered),
        *(torrent.seen, torrent.seeders, torrent.leechers, torrent.counted),
        *(("", None) if record.content is None else (record.content.type.name.lower(), record.content.category)),
    )


def magnet_link(record: TorrentRecord) -> str:
    """Return the magnet link, without trackers."""
    v1, v2 = _hexadecimal(record)
    topics = [f"xt=urn:btih:{v1}" if v1 else "", f"xt=urn:btmh:1220{v2}" if v2 else ""]
    return f"magnet:?{'&'.join(filter(None, topics))}&dn={quote(record.name, safe='')}&xl={record.size_bytes}"


def plausible_date(value: object) -> int | None:
    """Return a date that can be shown; None for others, such as the 0 of a client without a clock."""
    return value if isinstance(value, int) and 0 < value <= TIME_MAX else None


def _imported(fields: TorrentFields, now: int) -> ImportedTorrent:
    v1, v2 = _infohash(fields.infohash_v1, 20), _infohash(fields.infohash_v2, 32)
    try:
        record = TorrentRecord(
            infohash_v1=v1,
            infohash_v2=v2,
            name=fields.name,
            files=tuple([StoredFile(file.path, file.size_bytes) for file in fields.files or ()]),
            piece_bytes=fields.piece_bytes or 0,
            discovered=min(plausible_date(fields.discovered) or now, now),
            private=bool(fields.private),
            comment=fields.comment or "",
            created=plausible_date(fields.created),
        )
    except ValueError as error:
        raise BadTorrentLine(str(error)) from None
    if record.size_bytes > NUMBER_MAX:
        raise BadTorrentLine("the files together are larger than 2^63-1 bytes")
    if not fields.files:
        raise FilesUnknown(record)
    counted = plausible_date(fields.counted)
    if counted is None:
        return ImportedTorrent(record)
    # A count with a date in the future would never be replaced.
    return ImportedTorrent(
        record, Popularity(record.keys[0], fields.seeders or 0, fields.leechers or 0, min(counted, now))
    )


def _content(facts: ContentFacts | None) -> dict[str, Any]:
    if facts is None:
        return {}
    fields = facts._asdict() | {"type": facts.type.name.lower()}
    defaults = ContentFacts._field_defaults
    return {name: value for name, value in fields.items() if name in ALWAYS or value != defaults[name]}


def _infohash(text: str | None, size: int) -> bytes | None:
    if not text:
        return None
    if len(text) != 2 * size or not _HEX.fullmatch(text):
        raise BadTorrentLine(f"infohash {text[:80]!r}: not {2 * size} hexadecimal digits")
    return bytes.fromhex(text)


def _hexadecimal(record: TorrentRecord) -> tuple[str, str]:
    return (record.infohash_v1 or b"").hex(), (record.infohash_v2 or b"").hex()
