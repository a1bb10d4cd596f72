"""The embedded search index: tantivy in a folder (`search.index_folder`). One process writes, any number read.

tantivy gets folded words separated by spaces. Queries are built term by term, without tantivy's query syntax.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import tantivy

from lycosa.core.errors import IndexFailure
from lycosa.search.core.request import Matches, SearchRequest, ValueCounts
from lycosa.search.core.schema import IndexEntry, Schema
from lycosa.search.index_folder import IndexFolder, failures
from lycosa.search.tantivy_documents import add_entries, has_search_terms, remove_keys
from lycosa.search.tantivy_reader import TantivyReader
from lycosa.search.tantivy_writing import META, Rebuilt, open_for_writing

ENGINE = "tantivy"


class TantivyIndex:
    """The `Index` port in the folder `path`. With `write` this is the only writer, and creates the folder if needed.

    Raises `IndexFailure` if the folder has data other than such an index, or if a newer Lycosa built the index. With
    `write`, also raises it if another process writes the index; without `write`, if there is no index.
    """

    def __init__(self, path: Path, schema: Schema, *, write: bool = False) -> None:
        self.path = path
        self.schema = schema
        self._writer: tantivy.IndexWriter | None = None
        self._reload_lock = threading.Lock()
        self._folder = IndexFolder(path, ENGINE, schema, write=write)
        try:
            self._open(write)
        except BaseException:
            self.close()
            raise

    def _open(self, write: bool) -> None:
        with failures(self.path, "cannot be opened"):
            if write:
                self._folder.remove_others()
                if not (self._folder.data / META).exists():
                    self._folder.forget_positions()  # the documents are lost, and must be indexed again
                self._index, self._writer = open_for_writing(self._folder.data, self.schema)
            else:
                self._index = self._open_for_reading()
            self._load()
        self._positions = self._folder.positions()

    def _open_for_reading(self) -> tantivy.Index:
        if not (self._folder.data / META).exists():
            raise IndexFailure(f"the index {self.path} is still empty: fill it with `{self.schema.filled_by}`")
        return tantivy.Index.open(str(self._folder.data))

    def _load(self) -> None:
        self._is_sliced = has_search_terms(self._index.schema)
        self._index.config_reader("manual")  # `_reader` reloads: tantivy's watcher thread would do it too late
        stamp = self._commit_stamp()
        self._index.reload()
        self._last = TantivyReader(self.schema, self._index, stamp)
        self._adopted = self._folder.read_at

    @property
    def outdated(self) -> bool:
        return self._folder.outdated or (self.schema.numeric_keys and not self._is_sliced)

    @property
    def analysis(self) -> tuple[str, ...]:
        return self._folder.analysis

    def add(self, entries: Sequence[IndexEntry], *, new: bool = False) -> None:
        writer = self._writing()
        with failures(self.path, "does not accept documents"):
            add_entries(writer, self.schema, entries, new, self._is_sliced)

    def remove(self, keys: Sequence[str | int]) -> None:
        writer = self._writing()
        with failures(self.path, "does not accept documents"):
            remove_keys(writer, keys)

    def commit(self, positions: Mapping[str, int]) -> None:
        writer = self._writing()
        with failures(self.path, "cannot commit"):
            writer.commit()
            # Documents first: a crash before the positions are written repeats documents, but loses none.
            merged = {**self._positions, **positions}
            self._folder.write_positions(merged)
        self._positions = merged

    def positions(self) -> dict[str, int]:
        return dict(self._positions) if self._writer else self._folder.positions()

    def find(self, request: SearchRequest) -> Matches:
        with failures(self.path, "cannot be searched"):
            return self._reader().find(request)

    def has_matches(self, request: SearchRequest, more_than: int = 0) -> bool:
        with failures(self.path, "cannot be searched"):
            return self._reader().has_matches(request, more_than)

    def count_values(self, request: SearchRequest, limits: Mapping[str, int]) -> ValueCounts:
        with failures(self.path, "cannot be searched"):
            return self._reader().count_values(request, limits)

    def count_ranges(self, request: SearchRequest, field: str, bounds: Sequence[int]) -> list[int]:
        with failures(self.path, "cannot be searched"):
            return self._reader().count_ranges(request, field, bounds)

    def count(self) -> int:
        with failures(self.path, "cannot be read"):
            return self._reader().count

    def rebuild(self) -> Rebuilt:
        self._writing()
        generation = self._folder.marker.generation + 1
        with failures(self.path, "cannot be rebuilt"):
            self._folder.remove_others()
            return Rebuilt(self.schema, self.path, self._folder.generation(generation), generation)

    def adopt(self, rebuilt: object) -> None:
        assert isinstance(rebuilt, Rebuilt)
        rebuilt.commit()
        rebuilt.close()
        self._close_writer()
        with failures(self.path, "cannot be replaced"):
            self._folder.adopt(rebuilt.generation)
            self._index, self._writer = open_for_writing(self._folder.data, self.schema)
            self._load()

    def close(self) -> None:
        try:
            self._close_writer()
        finally:
            self._folder.close()

    def _close_writer(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            # Committed documents are safe, and `add` or `commit` has already reported why a thread failed.
            with contextlib.suppress(ValueError):
                writer.wait_merging_threads()

    def _writing(self) -> tantivy.IndexWriter:
        if self._writer is None:
            raise IndexFailure(f"the index {self.path} is not open for writing")
        return self._writer

    def _commit_stamp(self) -> tuple[int, int]:
        status = (self._folder.data / META).stat()
        return status.st_mtime_ns, status.st_ino

    def _reader(self) -> TantivyReader:
        """Return a reader of the last commit of any process."""
        while True:
            stamp = self._folder.stamp()
            try:
                return self._last_reader()
            except (OSError, ValueError, IndexFailure):
                # The writer may have adopted another generation, and removed the files of this one.
                if self._folder.stamp() == stamp:
                    raise

    def _last_reader(self) -> TantivyReader:
        if self._folder.stamp() != self._adopted:
            with self._reload_lock:
                self._folder.reload()
                self._index = self._open_for_reading()
                self._load()
        stamp = self._commit_stamp()
        if stamp != self._last.stamp:
            with self._reload_lock:
                self._index.reload()
                self._last = TantivyReader(self.schema, self._index, stamp)
        return self._last
