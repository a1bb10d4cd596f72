"""Writes items as one JSON array, exactly once: collects them in a spool, and writes the whole file at the end of a
run.

The spool is a file of JSON lines in the state. After a kill, the end of the next run writes the array. Only one process
at a time writes a file (an advisory lock).
"""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

from lycosa.core.errors import StorageError
from lycosa.infra.durable_files import sync_folder
from lycosa.infra.file_locks import unlock_and_close
from lycosa.storage.core.item_key import ItemKey
from lycosa.storage.sinks.codecs import PLAIN, Codec
from lycosa.storage.sinks.file import FileSink
from lycosa.storage.sinks.locked_file import check_file, open_locked, storage_errors

PIECE_BYTES = 4 * 1024**2
"""Approximate bytes of the spool that become one frame of a compressed array."""


class JsonArraySink:
    """Writes an array to `path`, through the file `spool`."""

    def __init__(self, path: str | Path, spool: Path, codec: Codec = PLAIN, *, sync: bool = False) -> None:
        self.path = Path(os.path.realpath(path))
        self.name = f"json{codec.suffix}:{self.path}"
        self._shown = os.fspath(path)
        self._spool = FileSink(spool, sync=sync)
        self._spool_path = spool
        self._codec = codec
        self._sync = sync
        self._lock = -1

    async def check(self) -> None:
        check_file(self.path, self._shown)
        with storage_errors(self._shown):
            if not os.access(self.path.parent, os.W_OK | os.X_OK):  # the draft is written next to the file
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    async def open(self, position: int | None, *, keep: bool = False) -> int:
        assert self._lock < 0, "open"
        await self.check()
        if position is None and self._has_content() and not self._spool_path.exists():
            raise StorageError(
                f"{self._shown} exists, and items cannot be appended to a JSON array: "
                "-O replaces it, and -o FILE.jsonl appends"
            )
        self._lock = open_locked(self.path, self._shown, sync=self._sync)
        try:
            return await self._spool.open(position, keep=keep)
        except BaseException:
            self._unlock()
            raise

    def prepare(self, item: Any) -> Any:
        return self._spool.prepare(item)

    def write(self, prepared: Any, key: ItemKey) -> None:
        self._spool.write(prepared, key)

    async def flush(self) -> int:
        return await self._spool.flush()

    async def close(self) -> None:
        """Write the array, unless the sink was never opened."""
        await self._spool.close()
        if self._lock < 0:
            return
        try:
            with storage_errors(self._shown):
                await asyncio.to_thread(self._write_array)
        finally:
            self._unlock()

    def _write_array(self) -> None:
        draft = self.path.with_name(f".{self.path.name}.draft")
        try:
            self._write_draft(draft)
            draft.replace(self.path)
        finally:
            draft.unlink(missing_ok=True)
        if self._sync:
            sync_folder(self.path.parent)

    def _write_draft(self, draft: Path) -> None:
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

    def _has_content(self) -> bool:
        return self.path.exists() and self.path.stat().st_size > 0

    def _unlock(self) -> None:
        lock, self._lock = self._lock, -1
        unlock_and_close(lock)
