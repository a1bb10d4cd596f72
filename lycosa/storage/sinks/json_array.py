"""Items as one JSON array, exactly once: the items lie in a spool, and each end of a run writes the whole file anew.

The spool is a file of JSON lines in the state, with the positions of a `FileSink`. A run that is killed leaves the file
of the run before; the next end of a run replaces it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.codecs import PLAIN, Codec
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.json_lines import write_error

PIECE_BYTES = 4 * 1024**2
"""Bytes of the spool that become one frame of a compressed array."""


class JsonArraySink:
    """An array in `path`, by way of the file `spool`."""

    def __init__(self, path: str | Path, spool: Path, codec: Codec = PLAIN, *, sync: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = f"json{codec.suffix}:{self.path}"
        self._shown = os.fspath(path)
        self._spool = FileSink(spool, sync=sync)
        self._spool_path = spool
        self._codec = codec
        self._sync = sync
        self._is_open = False

    async def check(self) -> None:
        folder = self.path.parent
        if not folder.is_dir():
            raise StorageError(f"{self._shown}: there is no folder {folder}")
        if self.path.exists() and not self.path.is_file():
            raise StorageError(f"{self._shown} is not a regular file: items go to a file, or to standard output (-o -)")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise StorageError(f"{self._shown}: items cannot be written: Permission denied")

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        await self.check()
        if position is None and self.path.exists() and not self._spool_path.exists():
            raise StorageError(f"{self._shown} exists, and a JSON array is written as a whole: -O replaces it")
        start = await self._spool.open(position, keep=keep)
        self._is_open = True
        return start

    def prepare(self, item: Any) -> Any:
        return self._spool.prepare(item)

    def write(self, prepared: Any, key: ItemKey) -> None:
        self._spool.write(prepared, key)

    async def flush(self) -> int:
        return await self._spool.flush()

    async def close(self) -> None:
        """Write the array. A run that was never opened changes nothing."""
        await self._spool.close()
        if self._is_open:
            self._is_open = False
            try:
                self._write_array()
            except OSError as error:
                raise write_error(self._shown, error) from error

    def _write_array(self) -> None:
        draft = self.path.with_name(f".{self.path.name}.draft")
        with self._spool_path.open("rb") as spool, draft.open("wb") as file:
            beginning = b"[\n"
            while lines := spool.readlines(PIECE_BYTES):
                items = b",\n".join(line.rstrip(b"\n") for line in lines)
                file.write(self._codec.compress(beginning + items))
                beginning = b",\n"
            file.write(self._codec.compress(b"[]\n" if beginning == b"[\n" else b"\n]\n"))
            if self._sync:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(self.path)
