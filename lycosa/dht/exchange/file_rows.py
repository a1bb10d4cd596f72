"""Rows of files beside rows of their torrents: both in the same order, read once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lycosa.storage.core.torrent_line import LINE_MAX

FILE_BYTES = 28
"""What a file without a path takes in a line."""

OwnedFile = tuple[Any, Any]
"""Path and size, as they stand in a database."""


class FileRows:
    """`rows` have the key of their torrent, the path and the size, and are sorted by the key."""

    def __init__(self, rows: Iterator[tuple[Any, Any, Any]]) -> None:
        self._rows = rows
        self._next = next(rows, None)

    def of(self, key: Any) -> list[OwnedFile] | None:
        """Return the files of a torrent whose key is larger than those before; None if they are too many for a line."""
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
