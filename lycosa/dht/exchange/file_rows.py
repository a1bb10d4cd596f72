"""Joins rows of files with the rows of their torrents. Both are in the same order and read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lycosa.storage.core.torrent_line import LINE_MAX

FILE_BYTES = 28
"""Approximate number of bytes that the entry of a file takes in a line of JSON, besides its path."""

OwnedFile = tuple[Any, Any]
"""Path and size, as read from a database."""


class FileRows:
    """`rows` have the key of their torrent, the path and the size, and are sorted by the key."""

    def __init__(self, rows: Iterator[tuple[Any, Any, Any]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, key: Any) -> list[OwnedFile] | None:
        """Return the files of a torrent; None if they do not fit into a line. Keys must ascend from call to call."""
        found: list[OwnedFile] = []
        room = LINE_MAX
        while self._next is not None and self._next[0] <= key:
            owner, path, size = self._next
            if owner == key:
                room -= FILE_BYTES + (len(path) if isinstance(path, (bytes, str)) else 0)
                if room >= 0:
                    found.append((path, size))
            self._next = next(self._rows, None)
        return found if room >= 0 else None
