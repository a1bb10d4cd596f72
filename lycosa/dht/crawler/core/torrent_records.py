"""Makes the record of a torrent from its metadata."""

from __future__ import annotations

from itertools import islice

from lycosa.dht.core.metadata.info import read_info
from lycosa.storage.core.torrent_record import StoredFile, TorrentRecord
from lycosa.storage.core.torrents.charsets import decode_names
from lycosa.storage.core.torrents.names import clean_path


def to_torrent_record(metadata: bytes, now: int, encoding: str = "") -> TorrentRecord:
    """Return the record of an info dict, with its names decoded to text. Raises `BadInfo`.

    `encoding` is what a torrent file declares outside the info dict.
    """
    info = read_info(metadata)
    files = [file for file in info.files if not file.padding]
    declared = info.encoding.decode("ascii", "replace") or encoding
    name, *parts = decode_names([info.name, *(part for file in files for part in file.path)], declared)
    following = iter(parts)
    paths = (clean_path(tuple(islice(following, len(file.path)))) for file in files)
    return TorrentRecord(
        infohash_v1=info.infohash_v1,
        infohash_v2=info.infohash_v2,
        name=name,
        files=tuple(StoredFile(path, file.size_bytes) for path, file in zip(paths, files, strict=True)),
        piece_bytes=info.piece_bytes,
        discovered=now,
        private=info.private,
    )
