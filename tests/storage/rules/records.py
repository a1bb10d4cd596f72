"""Records with the names that a test is about."""

from __future__ import annotations

from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord


def record_named(name: str, *paths: str) -> TorrentRecord:
    """Return a record with files of 1000 bytes; without paths, one file with the name of the torrent."""
    files = tuple(StoredFile(path, 1000) for path in paths or (name,))
    return TorrentRecord(b"\1" * 20, None, name, files, 16_384, 0)
