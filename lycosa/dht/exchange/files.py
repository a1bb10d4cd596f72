"""Sources in files: lines of JSON and magnet links, and folders of torrent files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from lycosa.dht.exchange.entries import Entry, EntryKind, reason_of
from lycosa.infra.line_files import READ_ERRORS, decompressed, file_size, numbered_lines
from lycosa.storage.core.torrent_line import LINE_MAX

TORRENT_SUFFIX = ".torrent"
TORRENT_BYTES_MAX = 64 << 20
"""A crawl fetches at most 10 MiB of metadata per torrent. A file also has trackers and, in version 2, piece layers."""


class LinesSource:
    """Lines of JSON, magnet links and infohashes in any mix. Blank lines and # comments are ignored."""

    def __init__(self, name: str, open_stream: Callable[[], BinaryIO], suffix: str = "") -> None:
        self.name = name
        self._open_stream, self._suffix = open_stream, suffix
        self.total = 0  # set when the source is open

    def entries(self) -> Iterator[Entry]:
        number = 0
        with self._open_stream() as stream:
            self.total = size = file_size(stream)
            try:
                for number, line in numbered_lines(decompressed(stream, self._suffix), LINE_MAX):
                    text = line.strip()
                    if text and not text.startswith(b"#"):
                        kind = EntryKind.LINE if text.startswith(b"{") else EntryKind.INFOHASH
                        yield Entry(f"line {number:,}", kind, text, stream.tell() if size else 0)
            except READ_ERRORS as error:
                problem = f"the file cannot be read further: {reason_of(error)}"
                yield Entry(f"line {number + 1:,}", EntryKind.BAD, problem.encode(), size)


class TorrentFilesSource:
    """One torrent file, or all torrent files of a folder and its subfolders. Links to folders are not followed."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self.total = 1 if path.is_file() else sum(kind is EntryKind.TORRENT for _, kind, _ in self._walk())

    def entries(self) -> Iterator[Entry]:
        done = 0
        for where, kind, data in self._walk():
            if kind is EntryKind.TORRENT:
                done += 1
                yield self._read(where, os.fsdecode(data), done)
            else:
                yield Entry(where, kind, data, done)

    def _read(self, where: str, path: str, done: int) -> Entry:
        try:
            with Path(path).open("rb") as file:
                data = file.read(TORRENT_BYTES_MAX + 1)
        except OSError as error:
            return Entry(where, EntryKind.BAD, reason_of(error).encode(), done)
        if len(data) > TORRENT_BYTES_MAX:
            return Entry(where, EntryKind.BAD, f"larger than {TORRENT_BYTES_MAX >> 20} MiB".encode(), done)
        return Entry(where, EntryKind.TORRENT, data, done)

    def _walk(self) -> Iterator[tuple[str, EntryKind, bytes]]:
        """Yield the paths of the torrent files, and a BAD entry for each folder that cannot be read."""
        if self._path.is_file():
            yield self._path.name, EntryKind.TORRENT, os.fsencode(self._path)
            return
        folders = [os.fspath(self._path)]
        while folders:
            folder = folders.pop()
            try:
                with os.scandir(folder) as found:
                    children = sorted(found, key=lambda each: each.name, reverse=True)
            except OSError as error:
                yield os.path.relpath(folder, self._path), EntryKind.BAD, reason_of(error).encode()
                continue
            folders += [each.path for each in children if each.is_dir(follow_symlinks=False)]
            for each in reversed(children):
                if each.name.lower().endswith(TORRENT_SUFFIX) and each.is_file():
                    yield os.path.relpath(each.path, self._path), EntryKind.TORRENT, os.fsencode(each.path)
