"""Feeds an index from a file of items that is still being written, in a thread of its own.

    file      |==== indexed ====|---- committed by the crawl ----|.... being written ....|
              0              position                          limit                    size

It reads whole lines from the position that the index itself committed, never beyond the limit it is told (the crawl's
committed output position), and commits documents and position in one step. After any crash index and items agree: what
was not committed is read again, and replaces itself. A page is searchable at most `COMMIT_S` and the time of a batch
after `advance`.

A failure ends the thread and not the crawl: it is in `failed` at once, and `close` raises it.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from lycosa.core.errors import IndexFailure, LycosaError
from lycosa.search.core.documents import to_document
from lycosa.search.core.results import Document
from lycosa.search.ports import Index

COMMIT_S = 1.0
"""Longest that an added document waits for its commit."""
BATCH_DOCS = 200
BATCH_BYTES = 8 * 1024**2
LINE_MAX = 64 * 1024**2
"""Bytes of one item; a longer line is counted as broken."""


class Batch(NamedTuple):
    """Documents read from an items file, where the next one begins, and how many lines were broken."""

    documents: list[Document]
    position: int
    broken: int


def source_name(path: str | Path) -> str:
    """Return the name of an items file among the positions of an index: the name its sink has."""
    return f"jsonl:{os.path.realpath(path)}"


def read_batch(path: Path, position: int, limit_bytes: int) -> Batch:
    """Read items from `position`, at most to `limit_bytes` and at most one batch.

    A last line without its newline counts when it is a whole item. Raises `IndexFailure` when the file is not the one
    that `position` was counted in.
    """
    documents: list[Document] = []
    broken = 0
    start = position
    with _opened(path, position) as file:
        while len(documents) < BATCH_DOCS and position < limit_bytes and position - start < BATCH_BYTES:
            line = file.readline(min(LINE_MAX, limit_bytes - position))
            document = _document(line)
            if document is None and len(line) < LINE_MAX and not line.endswith(b"\n"):
                break
            position += len(line)
            if len(line) == LINE_MAX and not line.endswith(b"\n"):
                position += _rest_of_line(file, limit_bytes - position)
            if document is not None:
                documents.append(document)
            elif line.strip():
                broken += 1
    return Batch(documents, position, broken)


class Indexer:
    """Follows one items file. `source` names it among the positions of the index, which stays its owner's to close."""

    def __init__(self, index: Index, path: Path, source: str) -> None:
        self.source = source
        self.position = 0
        """Bytes of the file that are indexed and committed."""
        self.documents = 0
        """Items indexed by this indexer."""
        self.broken = 0
        """Lines that are not JSON objects."""
        self.failed: LycosaError | None = None
        """Why the thread ended before its time."""
        self._index = index
        self._path = path
        self._read = 0
        self._limit = 0
        self._closing = False
        self._draining = True
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"indexer {path.name}", daemon=True)

    def start(self) -> None:
        """Begin where the index left off. Raises `IndexFailure` when the file was replaced since."""
        self.position = self._read = self._limit = self._index.positions().get(self.source, 0)
        if self.position:
            _opened(self._path, self.position).close()
        self._thread.start()

    @property
    def is_reading(self) -> bool:
        """Whether there is more to read up to the limit."""
        return self._thread.is_alive() and self._read < self._limit

    def advance(self, limit_bytes: int) -> None:
        """The file may be read up to here. Never blocks for long."""
        with self._changed:
            self._limit = max(self._limit, limit_bytes)
            self._changed.notify()

    def close(self, *, drain: bool = True) -> None:
        """End the thread: index what is there up to the limit, or without `drain` drop what is not committed.

        Blocks until it has ended. Raises what made it fail.
        """
        with self._changed:
            self._closing = True
            self._draining = drain
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        if self.failed is not None:
            raise self.failed

    def _run(self) -> None:
        try:
            self._follow()
        except LycosaError as error:
            self.failed = error
        except BaseException as error:  # noqa: BLE001  told to the owner, whatever it is: a panic of tantivy's too
            self.failed = IndexFailure(f"indexing {self._path} stopped: {error!r}")
            self.failed.__cause__ = error

    def _follow(self) -> None:
        commit_at: float | None = None
        while self._more(commit_at):
            if self._read < self._limit:
                self._take_batch()
                commit_at = commit_at or time.monotonic() + COMMIT_S
            if commit_at is not None and time.monotonic() >= commit_at:
                self._commit()
                commit_at = None
        if self._draining:
            self._commit()

    def _more(self, commit_at: float | None) -> bool:
        """Wait until there is something to read or to commit; False when it is time to end."""
        with self._changed:
            while self._read >= self._limit and not self._closing:
                wait_s = None if commit_at is None else commit_at - time.monotonic()
                if wait_s is not None and wait_s <= 0:
                    return True
                self._changed.wait(wait_s)
            return not self._closing or (self._draining and self._read < self._limit)

    def _take_batch(self) -> None:
        limit = self._limit
        batch = read_batch(self._path, self._read, limit)
        if batch.documents:
            self._index.add(batch.documents)
        if batch.position == self._read:
            self._wait_for_more_than(limit)
        self._read = batch.position
        self.documents += len(batch.documents)
        self.broken += batch.broken

    def _wait_for_more_than(self, limit: int) -> None:
        """The limit is within a line: the rest of it has to be written first."""
        with self._changed:
            if self._limit == limit:
                self._limit = self._read

    def _commit(self) -> None:
        if self._read > self.position:
            self._index.commit({self.source: self._read})
            self.position = self._read


def _document(line: bytes) -> Document | None:
    if len(line) >= LINE_MAX:
        return None
    try:
        item = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return to_document(item, line.rstrip(b"\n")) if isinstance(item, dict) else None


def _rest_of_line(file: BinaryIO, limit_bytes: int) -> int:
    """Pass over the rest of a line that is too long to hold. Return its size."""
    passed = 0
    while passed < limit_bytes:
        piece = file.readline(min(LINE_MAX, limit_bytes - passed))
        passed += len(piece)
        if not piece or piece.endswith(b"\n"):
            break
    return passed


def _opened(path: Path, position: int) -> BinaryIO:
    """Open the file at `position`, which must be where a line ended when it was read."""
    try:
        file = path.open("rb")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, position - 1))
        around = file.read(2) if position else b"\n"
        file.seek(position)
    except OSError as error:
        raise IndexFailure(f"{path} cannot be read: {error.strerror}") from error
    if position > size or not (b"\n" in around or position == size):
        file.close()
        raise IndexFailure(
            f"{path} is not the file that was indexed: `lycosa index build --fresh` builds the index anew"
        )
    return file
