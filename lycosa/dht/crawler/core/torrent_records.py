"""The record of a torrent from its metadata."""

from __future__ import annotations

from lycosa.dht.core.metadata.info import read_info
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord


def to_torrent_record(metadata: bytes, now: int) -> TorrentRecord:
    """Return the record of an info dict. Names that are no UTF-8 lose what cannot be read. Raises `BadInfo`."""
    info = read_info(metadata)
    files = (StoredFile("/".join(map(_text, file.path)), file.size_bytes) for file in info.files if not file.padding)
    return TorrentRecord(
        infohash_v1=info.infohash_v1,
        infohash_v2=info.infohash_v2,
        name=_text(info.name),
        files=tuple(files),
        piece_bytes=info.piece_bytes,
        discovered=now,
        private=info.private,
    )


def _text(name: bytes) -> str:
    return name.decode(errors="replace")
