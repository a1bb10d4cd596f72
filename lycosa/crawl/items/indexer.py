"""Indexes a file of items for searching, in a separate thread, while the crawl still writes the file.

    file      |==== indexed ====|---- committed by the crawl ----|.... being written ....|
              0              position                          limit                    size

The thread reads whole lines from the position committed in the index up to the limit, the committed position of the
crawl's output. It commits documents and position in one step, so index and items agree after any crash. While a search
server does not answer, the thread waits. Any other error ends the thread, not the crawl; `close` raises it.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from lycosa.core.errors import IndexFailure, IndexUnavailable, LycosaError
from lycosa.search.core.documents import Fields, to_document
from lycosa.search.core.results import Document
from lycosa.search.ports import DocumentIndex

log = logging.getLogger(__name__)

COMMIT_S = 1.0
RETRY_S = 5.0
"""Seconds before the next attempt if a search server does not answer."""
BATCH_DOCS = 200
BATCH_BYTES = 8 * 1024**2
LINE_MAX = 64 * 1024**2
"""Maximum bytes of one item; a longer line counts as broken."""


class Batch(NamedTuple):
    """Documents from an items file, the position after them, and the number of broken lines."""

    documents: list[Document]
    position: int
    broken: int


def source_name(path: str | Path) -> str:
    """Return the key under which an index stores its position in an items file: the name of the file's sink."""
    return f"jsonl:{os.path.realpath(path)}"


def read_batch(path: Path, position: int, limit_bytes: int, fields: Fields | None = None) -> Batch:
    """Read at most one batch of items between `position` and `limit_bytes`.

    A last line without a newline is read if it is a complete item. Raises `IndexFailure` if the file was replaced.
    """
    documents: list[Document] = []
    broken = 0
    start = position
    with _open_at(path, position) as file:
        while len(documents) < BATCH_DOCS and position < limit_bytes and position - start < BATCH_BYTES:
            line = file.readline(min(LINE_MAX, limit_bytes - position))
            document = _document(line, fields)
            if document is None and len(line) < LINE_MAX and not line.endswith(b"\n"):
                break  # the rest of the line is not written yet
            position += len(line)
            if len(line) == LINE_MAX and not line.endswith(b"\n"):
                position += _skip_line(file, limit_bytes - position)
            if document is not None:
                documents.append(document)
            elif line.strip():
                broken += 1
    return Batch(documents, position, broken)


class Indexer:
    """Follows one items file. `source` is the key of its position in the index. The caller closes the index."""

    def __init__(self, index: DocumentIndex, path: Path, source: str) -> None:
        self.source = source
        self.position = 0
        """Bytes of the file that are indexed and committed."""
        self.documents = 0
        self.broken = 0
        """Lines that are not JSON objects."""
        self.error: LycosaError | None = None
        self._index = index
        self._path = path
        self._read = 0
        self._limit = 0
        self._closing = False
        self._draining = True
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"indexer {path.name}", daemon=True)

    def start(self) -> None:
        """Start the thread at the committed position. Raises `IndexFailure` if the file was replaced since then."""
        self.position = self._read = self._limit = self._index.positions().get(self.source, 0)
        if self.position:
            _open_at(self._path, self.position).close()
        self._thread.start()

    @property
    def is_reading(self) -> bool:
        return self._thread.is_alive() and self._read < self._limit

    def advance(self, limit_bytes: int) -> None:
        with self._changed:
            self._limit = max(self._limit, limit_bytes)
            self._changed.notify()

    def close(self, *, drain: bool = True) -> None:
        """End the thread and wait for it. With `drain` it first indexes up to the limit.

        Without `drain`, documents that are not committed are dropped. Raises the error that ended the thread.
        """
        with self._changed:
            self._closing = True
            self._draining = drain
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._follow()
        except LycosaError as error:
            self.error = error
        except BaseException as error:  # noqa: BLE001  a panic of tantivy is not an Exception
            self.error = IndexFailure(f"indexing {self._path} stopped: {error!r}")
            self.error.__cause__ = error

    def _follow(self) -> None:
        commit_at: float | None = None
        while self._wait_for_work(commit_at):
            try:
                if self._read < self._limit:
                    self._index_batch()
                    commit_at = commit_at or time.monotonic() + COMMIT_S
                if commit_at is not None and time.monotonic() >= commit_at:
                    self._commit()
                    commit_at = None
            except IndexUnavailable as failure:
                self._pause(failure)
        if self._draining:
            self._commit()

    def _pause(self, failure: IndexUnavailable) -> None:
        log.warning("%s; trying again every %.0f s", failure, RETRY_S)
        with self._changed:
            if self._closing or self._changed.wait_for(lambda: self._closing, RETRY_S):
                raise failure

    def _wait_for_work(self, commit_at: float | None) -> bool:
        """Return False if the thread must end."""
        with self._changed:
            while self._read >= self._limit and not self._closing:
                wait_s = None if commit_at is None else commit_at - time.monotonic()
                if wait_s is not None and wait_s <= 0:
                    return True
                self._changed.wait(wait_s)
            return not self._closing or (self._draining and self._read < self._limit)

    def _index_batch(self) -> None:
        limit = self._limit
        batch = read_batch(self._path, self._read, limit, self._index.fields)
        if batch.documents:
            self._index.add(batch.documents)
        if batch.position == self._read:
            with self._changed:
                if self._limit == limit:  # the limit is inside a line: wait for the rest of the line
                    self._limit = self._read
        self._read = batch.position
        self.documents += len(batch.documents)
        self.broken += batch.broken

    def _commit(self) -> None:
        if self._read > self.position:
            self._index.commit({self.source: self._read})
            self.position = self._read


def _document(line: bytes, fields: Fields | None) -> Document | None:
    if len(line) >= LINE_MAX:
        return None
    try:
        item = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return to_document(item, line.rstrip(b"\n"), fields) if isinstance(item, dict) else None


def _skip_line(file: BinaryIO, limit_bytes: int) -> int:
    skipped = 0
    while skipped < limit_bytes:
        piece = file.readline(min(LINE_MAX, limit_bytes - skipped))
        skipped += len(piece)
        if not piece or piece.endswith(b"\n"):
            break
    return skipped


def _open_at(path: Path, position: int) -> BinaryIO:
    """Open the file at `position`. Raises `IndexFailure` if no line ends there: the file was replaced."""
    try:
        file = path.open("rb")
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, position - 1))
        # The newline is before `position`; or after it, if the last line was read before its newline was written.
        around = file.read(2) if position else b"\n"
        file.seek(position)
    except OSError as error:
        raise IndexFailure(f"{path} cannot be read: {error.strerror}") from error
    if position > size or not (b"\n" in around or position == size):
        file.close()
        raise IndexFailure(f"{path} is not the file that was indexed: `lycosa index build --fresh` rebuilds the index")
    return file
